"""What all meshes have in common: a region, by which they are sliced, reshaped and named anew."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self, SupportsIndex

from ..extent import Extent
from ..region import Index, Region

__all__ = ["Shaped"]


class Shaped(ABC):
    """A mesh. Each operation gives another one of its kind and leaves this one as it is.

    A subclass tells its `region` and makes its kind `_over` another region, whose ranks are among its own.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def region(self) -> Region:
        """Which ranks this holds, in which dimensions."""

    @abstractmethod
    def _over(self, region: Region) -> Self: ...

    @property
    def extent(self) -> Extent:
        """Names and sizes of the dimensions."""
        return self.region.extent

    @property
    def ranks(self) -> Sequence[int]:
        """The ranks held, in the order of the dimensions, numbered as when the mesh was spawned."""
        return self.region.ranks

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each dimension."""
        return self.region.sizes

    def size(self, dim: str | Sequence[str] | None = None) -> int:
        """The size of a dimension, the product of several, or how many ranks there are.

        Raises:
            InvalidArgument: no such dimension.
        """
        return self.region.size(dim)

    def __len__(self) -> int:
        return len(self.region)

    def slice(self, /, **indices: Index) -> Self:
        """A part: `slice(gpus=0)` drops the dimension; `slice(gpus=slice(1, None))`, `range(0, 4, 2)` and
        `[0, 3]` keep it. Raises as `Region.slice`.
        """
        return self._over(self.region.slice(**indices))

    def flatten(self, name: str) -> Self:
        """All ranks in one dimension, in their order. Raises as `Extent.flatten`."""
        return self._over(self.region.flatten(name))

    def rename(self, /, **names: str) -> Self:
        """Other names for some dimensions: `rename(gpus="tp")`. Raises as `Extent.rename`."""
        return self._over(self.region.rename(**names))

    def reshape(self, /, **sizes: SupportsIndex) -> Self:
        """The same ranks in other dimensions; one size may be -1. Raises as `Extent.reshape`."""
        return self._over(self.region.reshape(**sizes))

    def split(self, /, **names: Sequence[str] | SupportsIndex) -> Self:
        """Several dimensions in place of one: `split(gpus=("dp", "tp"), tp=2)`. Raises as `Extent.split`."""
        return self._over(self.region.split(**names))
