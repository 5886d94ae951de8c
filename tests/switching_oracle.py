"""What is known exactly of a switching linear system once its states are: one dense Gaussian."""

import numpy as np
from scipy.linalg import block_diag


def given_rules(initial, rules, potential):
    """Log-integral of the potentials, and the mean of z given them, where each step has known dynamics.

    `initial` is (mean, covariance), `rules` a list of ([A | b], Q), `potential` Gaussian at each step.
    """
    mean, covariance = np.asarray(initial[0]), np.asarray(initial[1])
    n, steps = len(mean), len(rules) + 1
    means, joint = [mean], np.zeros((steps * n, steps * n))
    joint[:n, :n] = covariance
    for t, (weights, noise) in enumerate(rules, 1):
        matrix, offset = np.asarray(weights)[:, :-1], np.asarray(weights)[:, -1]
        here, before = slice(t * n, (t + 1) * n), slice((t - 1) * n, t * n)
        means.append(matrix @ means[-1] + offset)
        joint[here] = matrix @ joint[before]
        joint[:, here] = joint[here].T
        joint[here, here] = matrix @ joint[before, before] @ matrix.T + np.asarray(noise)
    m, r = np.concatenate(means), np.ravel(potential.first)
    precision, R = np.linalg.inv(joint), block_diag(*(-2 * np.asarray(potential.second)))
    posterior = np.linalg.inv(precision + R)
    centre = posterior @ (precision @ m + r)
    level = 0.5 * (
        centre @ (precision + R) @ centre
        - m @ precision @ m
        + np.linalg.slogdet(posterior)[1]
        - np.linalg.slogdet(joint)[1]
    )
    return level, centre.reshape(steps, n)


def highest(potential):
    """The highest value of the potentials' logarithm."""
    r, R = np.ravel(potential.first), block_diag(*(-2 * np.asarray(potential.second)))
    return 0.5 * r @ np.linalg.pinv(R) @ r
