"""Contestant: the bare loop without the topic between the stages."""

from contestant_bare import Direct, main

if __name__ == "__main__":
    main(Direct)
