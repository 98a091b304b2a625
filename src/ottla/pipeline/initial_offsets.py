"""The initial offsets of a stream, and the limits that they set to its first micro-batch.

Invariant: the first micro-batch has the same records whenever it runs, except for records that were
deleted in between; a warning names those (`OffsetLookup.initial_offsets_of_repeat`).

Spark logs the end of the first micro-batch, but not its start. It asks for the start twice before
it runs the micro-batch, and again when it repeats the micro-batch after a failure. Therefore:

- The initial offsets are kept as long as the reader lives.
- A partition that starts at its end stays there in the first micro-batch, because its end moves
  later. So the end that Spark logs is also the start.
- A partition that was created in between belongs to the second micro-batch.

A repeat can be recognised: Spark asks for the initial offsets and for tasks, but not for an end.
"""

from typing import TYPE_CHECKING

from ottla.errors import RequestError
from ottla.ids import TopicPartition
from ottla.pipeline.loss import is_missing
from ottla.pipeline.offsets import (
    LATEST,
    JsonOffsets,
    Offsets,
    ResolvedOffsets,
    Specific,
    to_json,
)
from ottla.pipeline.options import BadOption
from ottla.pipeline.source_options import SourceOptions

if TYPE_CHECKING:
    from ottla.pipeline.offset_lookup import OffsetLookup


class InitialOffsets:
    """The initial offsets of a stream without a checkpoint; they are looked up once."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._resolved: ResolvedOffsets | None = None
        self._error: Exception | None = None  # why the options do not fit the topics
        self._end_requested = False  # whether Spark has asked for the end of a micro-batch
        self._repeat_planned = False

    def get(self, lookup: "OffsetLookup") -> JsonOffsets:
        """Return the initial offsets, the same at each call.

        Options that do not fit the topics raise in `is_first_batch`: a repeated micro-batch has its
        partitions already.
        """
        if self._resolved is None:
            start = self._options.start
            try:
                self._resolved = lookup.resolve_with_ends(start, lookup.partitions(), "starting")
            except (BadOption, RequestError) as error:
                if isinstance(error, RequestError) and not is_missing(error):
                    raise
                self._resolved, self._error = ResolvedOffsets({}), error
        return to_json(self._resolved.offsets)

    def is_first_batch(self, start: JsonOffsets) -> bool:
        """Return whether Spark, which asks for an end, starts the first micro-batch."""
        is_first = self._is_initial(start) and not self._repeat_planned
        self._end_requested = True
        if is_first and self._error is not None:
            raise self._error
        return is_first

    def is_repeat(self, start: JsonOffsets) -> bool:
        """Return whether Spark, which asks for tasks, repeats the first micro-batch."""
        if not self._is_initial(start):
            return False
        self._repeat_planned = True
        return True

    def raise_target(self, target: Offsets) -> dict[TopicPartition, int]:
        """Return an earlier target, raised to the initial offsets that are above it.

        An offset that the options name is not a reason: above the end of its partition it is an
        error.
        """
        limit = self._options.start
        named: Offsets = limit.offsets if isinstance(limit, Specific) else {}
        found = dict(target)
        for one, offset in self._known.offsets.items():
            if one not in found or (named.get(one, LATEST) < 0 and found[one] < offset):
                found[one] = offset
        return found

    def first_batch_ends(self, ends: Offsets) -> dict[TopicPartition, int]:
        """Return where the first micro-batch ends at most, given the ends of the partitions."""
        start, at_end = self._known.offsets, self._known.at_end
        return {one: start[one] if one in at_end else ends[one] for one in ends if one in start}

    @property
    def _known(self) -> ResolvedOffsets:
        assert self._resolved is not None, "Spark asks for the initial offsets first"
        return self._resolved

    def _is_initial(self, start: JsonOffsets) -> bool:
        resolved = self._resolved
        return (
            resolved is not None and not self._end_requested and start == to_json(resolved.offsets)
        )
