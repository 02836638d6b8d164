"""`python -m presilicon` is the `presilicon` command."""

from presilicon.cli.main import main

if __name__ == "__main__":
    main()
