"""Where in the user's file something was said, so that an error can point there."""

from penstock.origin import Origin, here

__all__ = ["Origin", "here"]
