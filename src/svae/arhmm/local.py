"""The states of sequences, given regressions and transitions: forward-backward, all sequences at once."""

from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from svae.arhmm.emissions import outer_features

SMALLEST_SCALE = 1e-150  # of a step's probability, below which that of single states may have been lost


def one_thread() -> AbstractContextManager:
    """Within it, matrix products use one thread: on small matrices more of them wait for each other."""
    return threadpool_limits(limits=1, user_api="blas")


class Sequences(NamedTuple):
    """Transitions of several sequences, padded: frame by frame, outputs given inputs."""

    features: Float[ndarray, "sequences time size"]  # sufficient statistics; zero where unknown
    valid: Bool[ndarray, "sequences time"]  # not padding

    def __len__(self) -> int:
        return len(self.valid)

    def select(self, which: Int[ndarray, "some"] | slice) -> "Sequences":
        """Some of the sequences, without padding that all of them have; those of a slice are not copied."""
        time = int(self.valid[which].sum(axis=1).max(initial=0))
        return Sequences(self.features[which, :time], self.valid[which, :time])


class SequenceStats(NamedTuple):
    """What the states of each sequence add to the whole; `entropy` is that of q(states)."""

    regression: Float[ndarray, "*sequences k size"]
    start: Float[ndarray, "*sequences k"]
    counts: Float[ndarray, "*sequences k k"]
    entropy: Float[ndarray, "*sequences"]

    @property
    def usage(self) -> Float[ndarray, "*sequences k"]:
        """Expected number of frames in each state."""
        return self.start + self.counts.sum(axis=-2)

    def total(self) -> "SequenceStats":
        """Summed over sequences."""
        return SequenceStats(*(np.asarray(x.sum(axis=0)) for x in self))

    def copy(self) -> "SequenceStats":
        """With numbers of its own."""
        return SequenceStats(*(x.copy() for x in self))

    def replaced(self, which: Int[ndarray, "some"], new: "SequenceStats") -> "SequenceStats":
        """With the statistics of some sequences exchanged."""
        result = self.copy()
        for old, x in zip(result, new, strict=True):
            old[which] = x
        return result

    def mapped(self, mapping: Float[ndarray, "k j"]) -> "SequenceStats":
        """With states renamed, merged, dropped or added: state k's statistics go to mapping[k]."""
        return SequenceStats(
            mapping.T @ self.regression,
            self.start @ mapping,
            mapping.T @ self.counts @ mapping,
            self.entropy,
        )


def pad(series: list[Float[ndarray, "_ n"]]) -> Sequences:
    """Transitions from each frame to the next; those next to missing frames say nothing."""
    time, n = max(len(x) for x in series) - 1, series[0].shape[1]
    size = outer_features(np.zeros((0, n)), np.zeros((0, n + 1))).shape[1]
    features = np.zeros((len(series), time, size))
    valid = np.zeros((len(series), time), bool)
    for i, x in enumerate(series):
        inputs = np.concatenate([x[:-1], np.ones((len(x) - 1, 1))], axis=1)
        rows = outer_features(x[1:], inputs)
        known = np.isfinite(rows).all(axis=1)
        features[i, : len(rows)][known] = rows[known]
        valid[i, : len(rows)] = True
    return Sequences(features, valid)


class Smoothed(NamedTuple):
    """State probabilities at each step, expected transitions, and the log-evidence of each sequence."""

    probability: Float[ndarray, "sequences time k"]
    counts: Float[ndarray, "sequences k k"]
    log_evidence: Float[ndarray, "sequences"]


def forward_backward(
    scores: Float[ndarray, "sequences time k"],
    valid: Bool[ndarray, "sequences time"],
    log_start: Float[ndarray, "k"],
    log_rows: Float[ndarray, "k k"],
) -> Smoothed:
    """`scores` are log-likelihoods, the other two log-weights."""
    smoothed, lowest = _scaled(scores, valid, log_start, log_rows)
    unsafe = ~np.isfinite(smoothed.probability).all(axis=(1, 2)) | ~(lowest > SMALLEST_SCALE)
    if np.any(unsafe):
        exact = _in_logarithms(scores[unsafe], valid[unsafe], log_start, log_rows)
        for old, new in zip(smoothed, exact, strict=True):
            old[unsafe] = new
    return smoothed


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def _scaled(scores, valid, log_start, log_rows) -> tuple[Smoothed, Float[ndarray, "sequences"]]:
    """With scaled probabilities, and the smallest scale of each sequence: next to zero, digits were lost."""
    time = scores.shape[1]
    highest = scores.max(axis=2)
    likelihood = np.exp(scores - highest[:, :, None])
    rows = np.exp(log_rows)

    forward, scale = np.empty_like(scores), np.ones(scores.shape[:2])
    message = np.exp(log_start)[None] * likelihood[:, 0]
    for t in range(time):
        if t:
            moved = (forward[:, t - 1] @ rows) * likelihood[:, t]
            message = np.where(valid[:, t, None], moved, forward[:, t - 1])
        total = message.sum(axis=1)
        scale[:, t] = np.where(valid[:, t], total, 1.0)
        forward[:, t] = message / scale[:, t, None]
    evidence = np.sum(np.where(valid, np.log(scale) + highest, 0), axis=1)

    # weight_t = likelihood_t * backward_t / scale_t, so that pairs are forward_{t-1} * rows * weight_t
    backward, weight = np.ones_like(scores[:, 0]), np.zeros_like(scores)
    for t in range(time - 1, 0, -1):
        weight[:, t] = np.where(valid[:, t, None], likelihood[:, t] * backward / scale[:, t, None], 0)
        backward = np.where(valid[:, t, None], weight[:, t] @ rows.T, backward)
    probability = np.empty_like(scores)
    probability[:, 0] = forward[:, 0] * backward
    probability[:, 1:] = (forward[:, :-1] @ rows) * weight[:, 1:]
    counts = rows * np.einsum("bti,btj->bij", forward[:, :-1], weight[:, 1:], optimize=True)
    return Smoothed(probability, counts, evidence), scale.min(axis=1)


def _in_logarithms(scores, valid, log_start, log_rows) -> Smoothed:
    """The same, slowly, for sequences in which no state explains a frame and the way to it at once."""
    forward = np.empty_like(scores)
    forward[:, 0] = log_start + scores[:, 0]
    for t in range(1, scores.shape[1]):
        moved = logsumexp(forward[:, t - 1, :, None] + log_rows, axis=1) + scores[:, t]
        forward[:, t] = np.where(valid[:, t, None], moved, forward[:, t - 1])
    evidence = logsumexp(forward[:, -1], axis=1)

    backward, counts = np.zeros_like(forward), np.zeros((len(scores), *log_rows.shape))
    for t in range(scores.shape[1] - 1, 0, -1):
        onward = log_rows + (scores[:, t] + backward[:, t])[:, None]
        here = valid[:, t, None]
        backward[:, t - 1] = np.where(here, logsumexp(onward, axis=2), backward[:, t])
        pairs = np.exp(forward[:, t - 1, :, None] + onward - evidence[:, None, None])
        counts += np.where(here[:, :, None], pairs, 0)
    return Smoothed(np.exp(forward + backward - evidence[:, None, None]), counts, evidence)


def most_likely_path(
    scores: Float[ndarray, "time k"], log_start: Float[ndarray, "k"], log_rows: Float[ndarray, "k k"]
) -> Int[ndarray, "time"]:
    """Viterbi's path of one sequence."""
    best, came_from = log_start + scores[0], []
    for score in scores[1:]:
        arrivals = best[:, None] + log_rows
        came_from.append(arrivals.argmax(axis=0))
        best = arrivals.max(axis=0) + score
    path = [int(best.argmax())]
    for pointer in reversed(came_from):
        path.append(int(pointer[path[-1]]))
    return np.array(path[::-1])


def sequence_stats(
    sequences: Sequences,
    natural: Float[ndarray, "k size"],
    log_start: Float[ndarray, "k"],
    log_rows: Float[ndarray, "k k"],
) -> tuple[SequenceStats, Float[ndarray, "sequences time k"]]:
    """The local step: statistics of the states that the globals imply, and their probabilities."""
    scores = sequences.features @ natural.T
    smoothed = forward_backward(scores, sequences.valid, log_start, log_rows)
    probability = np.where(sequences.valid[:, :, None], smoothed.probability, 0)
    start = probability[:, 0]
    # H[q] = log Z - <natural, statistics>
    energy = (
        np.sum(probability * scores, axis=(1, 2))
        + start @ log_start
        + np.sum(smoothed.counts * log_rows, axis=(1, 2))
    )
    regression = np.swapaxes(probability, 1, 2) @ sequences.features
    stats = SequenceStats(regression, start, smoothed.counts, smoothed.log_evidence - energy)
    return stats, probability
