"""The names of the variables that a session protects, and whose each is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from varve import _arrays, _errors, _native

#: Whose a variable is that the program protects by its name. Owners are words, for errors.
ITSELF = "by another variable"


class Variables:
    """What a session protects. A variable has one owner, which may protect it again; to anybody else its name is
    refused, so that nothing takes another thing's place unseen."""

    def __init__(self, native: _native.Session) -> None:
        self.native = native
        self._owners: dict[str, str] = {}
        self._claims: dict[str, str] = {}

    def check(self, name: str, owner: str) -> None:
        """Raises if a name is somebody else's."""
        for other in self._owners_of(name):
            if other != owner:
                raise _errors.InvalidArgument(
                    f"this name is in use already, {other}: {name}", "give one of the two another name"
                )

    def claim(self, name: str, owner: str) -> None:
        """Keeps a name, and all that begin with "name/", for ``owner``, which begins anew: what it had is unprotected.
        Raises, and changes nothing, if one of these names is somebody else's."""
        for taken in [name, *self._owners, *self._claims]:
            if taken == name or taken.startswith(f"{name}/"):
                self.check(taken, owner)
        self.forget_all(owner)
        self._claims[name] = owner

    def protect(self, name: str, owner: str, protect: Callable[[], None]) -> None:
        """Has ``protect`` protect it. If that fails, what was protected before still is."""
        self.check(name, owner)
        protect()
        self._owners[name] = owner

    def protect_array(self, name: str, owner: str, array: _arrays.Array, layout: _arrays.Layout) -> None:
        self.protect(
            name,
            owner,
            lambda: self.native.protect_array(
                name,
                layout.type,
                layout.address,
                layout.count,
                layout.cells,
                layout.ghosts_low,
                layout.ghosts_high,
                layout.global_cells,
                layout.global_offset,
                layout.fastest_first,
                array,
            ),
        )

    def unprotect(self, name: str) -> None:
        """Of a name that is claimed, with all that its owner has. varve.NotFound: it is not protected."""
        if name in self._claims:
            self.forget_all(self._claims[name])
        elif self._owners.get(name, ITSELF) != ITSELF:
            raise _errors.InvalidArgument(
                f"it is protected {self._owners[name]}: {name}", "take it out of that, or unprotect all of that"
            )
        else:
            self._unprotect(name)

    def forget(self, name: str, owner: str) -> None:
        """Unprotects it if it is protected, and the owner's."""
        if self._owners.get(name) == owner:
            self._unprotect(name)

    def forget_all(self, owner: str) -> None:
        """Unprotects all that is the owner's, and gives up the names that it has claimed."""
        for name in [name for name, other in self._owners.items() if other == owner]:
            self._unprotect(name)
        self._claims = {name: other for name, other in self._claims.items() if other != owner}

    def _unprotect(self, name: str) -> None:
        self.native.unprotect(name)
        self._owners.pop(name, None)

    def _owners_of(self, name: str) -> Iterator[str]:
        if name in self._owners:
            yield self._owners[name]
        for claimed, owner in self._claims.items():
            if name == claimed or name.startswith(f"{claimed}/"):
                yield owner
