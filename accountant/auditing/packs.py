"""The checkpoints of a bundle, which are kept in packs and unpacked one pack at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from accountant.auditing.findings import Findings
from accountant.ledger import bundle
from accountant.ledger.tiles import WIDTH


class Packs:
    """So many packs, as far as they are among ``files``. What is wrong with a pack as such is
    reported at once; a pack that cannot be unpacked is then passed over.
    """

    def __init__(self, findings: Findings, files: Mapping[str, bytes], count: int) -> None:
        self._packs: dict[int, bytes] = {}
        self._count = count
        for number in range(count):
            member = bundle.pack_member(number)
            if member not in files:
                continue  # its absence is reported as such
            try:
                held = len(bundle.checkpoints_of(files[member]))
            except ValueError as error:
                findings.add(str(error), member=member)
                continue
            self._packs[number] = files[member]
            if held < WIDTH and number != count - 1:
                findings.add(f"it has {held} checkpoints, though others follow", member=member)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Every checkpoint in order, by what it is called in findings."""
        for number, pack in self._packs.items():
            for place, note in enumerate(bundle.checkpoints_of(pack), number * WIDTH):
                yield f"checkpoint {place}", note

    @property
    def last(self) -> bytes | None:
        """The last checkpoint; None if its pack is of no use, which is reported."""
        pack = self._packs.get(self._count - 1)
        return None if pack is None else bundle.checkpoints_of(pack)[-1]
