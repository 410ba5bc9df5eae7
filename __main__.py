"""`python -m trustfold` is the command `trustfold`."""

from .cli.main import main

if __name__ == "__main__":
    main()
