"""Where a stream begins, and what its first micro-batch may take for that.

Invariant: the first micro-batch has the same records whenever it is run, but for those that were
deleted meanwhile, of which a warning tells (`OffsetLookup.repeated`). Spark writes down where it
ends, and not where it begins: that it asks twice before it runs it, and anew when it repeats it
after a failure. So the answer is kept as long as the reader lives, and a partition that begins at
its end, which is elsewhere later, stays there in the first micro-batch: what is written down is its
beginning then. A partition that came in between is for the next one.

A repeated micro-batch is known by what Spark asks: where the stream begins, and its tasks, without
a look for an end in between.
"""

from typing import TYPE_CHECKING

from ottla.errors import RequestError
from ottla.ids import TopicPartition
from ottla.pipeline.loss import is_gone
from ottla.pipeline.offsets import LATEST, Offsets, Places, Specific, Written, written
from ottla.pipeline.options import BadOption
from ottla.pipeline.source_options import SourceOptions

if TYPE_CHECKING:
    from ottla.pipeline.offset_lookup import OffsetLookup


class InitialOffsets:
    """Where a stream begins that has no place yet; asked for once."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._places: Places | None = None
        self._unfit: Exception | None = None  # why no stream can begin as it was told to
        self._is_looked = False  # whether the end of a micro-batch was looked for
        self._is_repeated = False

    def asked(self, survey: "OffsetLookup") -> Written:
        """Where it begins; the same however often it is asked.

        What does not fit the topics of now is an error of `is_looked_for`: a micro-batch that is
        repeated has its partitions already.
        """
        if self._places is None:
            try:
                self._places = survey.places(self._options.start, survey.partitions(), "starting")
            except (BadOption, RequestError) as error:
                if isinstance(error, RequestError) and not is_gone(error):
                    raise
                self._places, self._unfit = Places({}), error
        return written(self._places.offsets)

    def is_looked_for(self, start: Written) -> bool:
        """Whether a look for an end is the one for the first micro-batch."""
        is_first = self._is_at(start) and not self._is_repeated
        self._is_looked = True
        if is_first and self._unfit is not None:
            raise self._unfit
        return is_first

    def is_repeated(self, start: Written) -> bool:
        """Whether a micro-batch that is planned is the first one, of an earlier life."""
        if not self._is_at(start):
            return False
        self._is_repeated = True
        return True

    def raised(self, target: Offsets) -> dict[TopicPartition, int]:
        """A target that was set before, where the stream begins behind it.

        An offset that the options name is no reason: behind the end it is a mistake.
        """
        limit = self._options.start
        named: Offsets = limit.offsets if isinstance(limit, Specific) else {}
        found = dict(target)
        for one, offset in self._known.offsets.items():
            if one not in found or (named.get(one, LATEST) < 0 and found[one] < offset):
                found[one] = offset
        return found

    def first_ends(self, ends: Offsets) -> dict[TopicPartition, int]:
        """How far the first micro-batch may go, when the partitions end there."""
        begun, at_end = self._known.offsets, self._known.at_end
        return {one: begun[one] if one in at_end else ends[one] for one in ends if one in begun}

    @property
    def _known(self) -> Places:
        assert self._places is not None, "asked for first"
        return self._places

    def _is_at(self, start: Written) -> bool:
        places = self._places
        return places is not None and not self._is_looked and start == written(places.offsets)
