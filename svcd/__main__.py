"""`python -m svcd` is the command `svcd`."""
from svcd.cli.main import main

if __name__ == "__main__":
    main()
