"""The user's source as it is read: files, names, loops, loaders, and where values come from."""
