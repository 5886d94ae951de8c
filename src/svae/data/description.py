"""What a set of recordings is like, and what looks wrong with it."""

from dataclasses import dataclass

import numpy as np

from svae.data.recordings import Recordings
from svae.data.scaling import Moments, channel_moments

OUTLIER_DEVIATIONS = 10.0  # of a Gaussian, not one entry in 10^22 lies that far out
SCALE_RATIO = 1000.0
MISSING_SHARE = 0.5


@dataclass(frozen=True)
class Channel:
    """One channel over all recordings; the moments are those of the observed entries."""

    name: str
    minimum: float
    maximum: float
    mean: float
    deviation: float
    missing: float
    longest_gap: int
    outliers: int
    duplicate_of: str | None

    @property
    def constant(self) -> bool:
        """Whether it never changes."""
        return self.minimum == self.maximum


@dataclass(frozen=True)
class Description:
    """A summary of recordings. `missing` are shares, `longest_gap` frames, `memory` bytes."""

    names: tuple[str, ...]
    lengths: tuple[int, ...]
    rate: float | None
    channels: tuple[Channel, ...]
    missing: float
    labels: dict[str, int]
    memory: int
    warnings: tuple[str, ...]

    @property
    def frames(self) -> int:
        """Frames in all recordings."""
        return sum(self.lengths)

    @property
    def seconds(self) -> tuple[float, ...] | None:
        """Duration of each recording, where the rate is known."""
        return None if self.rate is None else tuple(length / self.rate for length in self.lengths)


def describe(recordings: Recordings) -> Description:
    """Looks at every entry once; `warnings` are plain sentences."""
    moments = channel_moments(recordings)
    channels = _channels(recordings, moments)
    frames = sum(recordings.lengths)
    return Description(
        names=recordings.names,
        lengths=recordings.lengths,
        rate=recordings.rate,
        channels=channels,
        missing=1 - float(np.sum(moments.count)) / (frames * recordings.num_features),
        labels=_label_counts(recordings),
        memory=sum(item.values.nbytes for item in recordings),
        warnings=tuple(_warnings(recordings, channels)),
    )


def _channels(recordings: Recordings, moments: Moments) -> tuple[Channel, ...]:
    deviation = np.sqrt(moments.variance)
    frames = sum(recordings.lengths)
    far = OUTLIER_DEVIATIONS * deviation
    outliers = sum(np.sum(np.abs(item.values - moments.mean) > far, axis=0) for item in recordings)
    gaps = np.max([_longest_gaps(np.isnan(item.values)) for item in recordings], axis=0)
    twins = _duplicates(recordings, moments)
    return tuple(
        Channel(
            name=name,
            minimum=float(moments.minimum[i]),
            maximum=float(moments.maximum[i]),
            mean=float(moments.mean[i]),
            deviation=float(deviation[i]),
            missing=1 - float(moments.count[i]) / frames,
            longest_gap=int(gaps[i]),
            outliers=int(outliers[i]),
            duplicate_of=twins.get(name),
        )
        for i, name in enumerate(recordings.channels)
    )


def _longest_gaps(missing: np.ndarray) -> np.ndarray:
    """The longest run of True in each column."""
    steps = np.arange(1, len(missing) + 1)[:, None]
    # frames since the last observed one
    last_observed = np.maximum.accumulate(np.where(missing, 0, steps), axis=0)
    return np.max(steps - last_observed, axis=0, initial=0)


def _duplicates(recordings: Recordings, moments: Moments) -> dict[str, str]:
    """Channels that equal an earlier one entry by entry, missing ones included."""
    alike: dict[tuple[float, ...], list[int]] = {}
    for i in range(recordings.num_features):  # what differs in its moments need not be looked at
        alike.setdefault((moments.count[i], moments.mean[i], moments.variance[i]), []).append(i)
    first: dict[tuple[int, ...], str] = {}
    twins = {}
    for i in sorted(i for group in alike.values() if len(group) > 1 for i in group):
        name = recordings.channels[i]
        # adding zero makes -0 and 0 the same bytes
        prints = tuple(hash((item.values[:, i] + 0.0).tobytes()) for item in recordings)
        earlier = first.setdefault(prints, name)
        if earlier != name:
            twins[name] = earlier
    return twins


def _label_counts(recordings: Recordings) -> dict[str, int]:
    labels = [item.labels for item in recordings if item.labels is not None]
    if not labels:
        return {}
    values, counts = np.unique(np.concatenate(labels), return_counts=True)
    names = recordings.label_names
    return {
        "unlabelled" if value < 0 else names[value] if names else str(value): int(count)
        for value, count in zip(values, counts, strict=True)
    }


def _warnings(recordings: Recordings, channels: tuple[Channel, ...]) -> list[str]:
    sentences = []
    if recordings.rate is None:
        sentences.append("The sampling rate is unknown, so durations are in frames: give it (--rate, rate=).")
    for channel in channels:
        where = f"Channel '{channel.name}'"
        if channel.constant:
            sentences.append(f"{where} is constant ({channel.minimum:g}): it tells nothing; leave it out.")
        if channel.duplicate_of is not None and not channel.constant:
            sentences.append(f"{where} is a copy of '{channel.duplicate_of}'; leave one of them out.")
        if channel.missing > MISSING_SHARE:
            share = f"{100 * channel.missing:.0f} %"
            sentences.append(f"{where} is missing in {share} of the frames.")
        if channel.outliers:
            count = f"{channel.outliers} {'entry' if channel.outliers == 1 else 'entries'}"
            sentences.append(
                f"{where} has {count} more than {OUTLIER_DEVIATIONS:g} standard deviations from its mean; "
                "put NaN there if they are errors."
            )
    changing = [channel for channel in channels if not channel.constant]
    if changing:
        widest, narrowest = (f(changing, key=lambda channel: channel.deviation) for f in (max, min))
        if widest.deviation > SCALE_RATIO * narrowest.deviation:
            ratio = widest.deviation / narrowest.deviation
            sentences.append(
                f"Channel '{widest.name}' varies {ratio:.3g} times as much as '{narrowest.name}'; "
                "standardise each channel, or check the units."
            )
    return sentences
