from ward_federation.server import main

main()
