"""`python -m flatout` is the `flatout` command."""

from flatout.cli.main import main

if __name__ == "__main__":
    main()
