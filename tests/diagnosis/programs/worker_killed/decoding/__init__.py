from .frames import Clips

__all__ = ["Clips"]
