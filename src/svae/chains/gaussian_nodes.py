r"""What happens at one node of a Gaussian chain: the formulas of block elimination.

Integrating out a node o between its neighbours e and r leaves

$$ z_o \mid z_e, z_r \sim N(G_e z_e + G_r z_r + g,\; C), \qquad C = J_o^{-1},\;
   G_e = C N_{eo}^\top,\; G_r = C N_{or},\; g = C h_o, $$

adds $-N_{eo} G_e$, $-N_{or}^\top G_r$ to the neighbours' precisions, $N_{eo}\, g$, $N_{or}^\top g$ to their
linear terms, and the new edge $N_{eo} G_r$ between them. Going back, the neighbours' moments give the
node's. The `..._change` functions are the derivatives of both, with the factors of the first pass: they
invert nothing.

All are written for an algebra of small matrices, the first argument: `svae.linalg` for arrays with leading
axes, `svae.kernels.tiles` for one matrix in a GPU's registers.
"""

from typing import Any, NamedTuple

from jaxtyping import Array, Float

Algebra = Any  # a module with matmul, matvec, transpose, symmetrize, inner, inverse_cholesky, ...


class Node(NamedTuple):
    """J_o and h_o, with the edges to the left and to the right neighbour."""

    precision: Float[Array, "*nodes n n"]
    linear: Float[Array, "*nodes n"]
    edge_left: Float[Array, "*nodes n n"]
    edge_right: Float[Array, "*nodes n n"]


class Conditional(NamedTuple):
    """z_o | z_e, z_r ~ N(left z_e + right z_r + offset, covariance)."""

    left: Float[Array, "*nodes n n"]
    right: Float[Array, "*nodes n n"]
    offset: Float[Array, "*nodes n"]
    covariance: Float[Array, "*nodes n n"]


class Messages(NamedTuple):
    """What is taken from the neighbours' precisions, what is added to their linear terms, and their edge."""

    precision_left: Float[Array, "*nodes n n"]
    precision_right: Float[Array, "*nodes n n"]
    linear_left: Float[Array, "*nodes n"]
    linear_right: Float[Array, "*nodes n"]
    edge: Float[Array, "*nodes n n"]


class Neighbours(NamedTuple):
    """Moments of e and r."""

    mean_left: Float[Array, "*nodes n"]
    mean_right: Float[Array, "*nodes n"]
    covariance_left: Float[Array, "*nodes n n"]
    covariance_right: Float[Array, "*nodes n n"]
    cross: Float[Array, "*nodes n n"]


class NodeMoments(NamedTuple):
    """Moments of o: its own, and its covariances with e (Cov(z_e, z_o)) and r (Cov(z_o, z_r))."""

    mean: Float[Array, "*nodes n"]
    covariance: Float[Array, "*nodes n n"]
    cross_left: Float[Array, "*nodes n n"]
    cross_right: Float[Array, "*nodes n n"]


def log_partition(la: Algebra, linear: Array, offset: Array, log_det: Array) -> Float[Array, "*nodes"]:
    """log integral exp(h'z - z'Jz/2) dz, less log(2 pi)/2 for each variable.

    Those are counted at the end: padding adds exactly nothing then.
    """
    return 0.5 * (la.inner(linear, offset) - log_det)


def eliminate(la: Algebra, node: Node) -> tuple[Float[Array, "*nodes"], Conditional, Messages]:
    """Integrate the node out."""
    covariance, log_det = la.inverse_and_log_det(node.precision)
    conditional = _conditional(la, node, covariance)
    own = log_partition(la, node.linear, conditional.offset, log_det)
    return own, conditional, _messages(la, node, conditional)


def _conditional(la: Algebra, node: Node, covariance: Array) -> Conditional:
    left = la.matmul(covariance, la.transpose(node.edge_left))
    right = la.matmul(covariance, node.edge_right)
    return Conditional(left, right, la.matvec(covariance, node.linear), covariance)


def _messages(la: Algebra, node: Node, conditional: Conditional) -> Messages:
    left, right, offset, _ = conditional
    return Messages(
        la.symmetric(la.matmul(node.edge_left, left)),
        la.symmetric(la.matmul(la.transpose(node.edge_right), right)),
        la.matvec(node.edge_left, offset),
        la.matvec(la.transpose(node.edge_right), offset),
        la.matmul(node.edge_left, right),
    )


def restore(la: Algebra, conditional: Conditional, around: Neighbours) -> NodeMoments:
    """The node's moments, given its neighbours'."""
    left, right, offset, own = conditional
    mean = offset + la.matvec(left, around.mean_left) + la.matvec(right, around.mean_right)
    cross_left = la.matmul(around.covariance_left, la.transpose(left)) + la.matmul(
        around.cross, la.transpose(right)
    )
    cross_right = la.matmul(left, around.cross) + la.matmul(right, around.covariance_right)
    explained = la.matmul(left, cross_left) + la.matmul(right, la.transpose(cross_right))
    return NodeMoments(mean, own + la.symmetric(explained), cross_left, cross_right)


def eliminate_change(la: Algebra, conditional: Conditional, change: Node) -> tuple[Conditional, Messages]:
    """How `eliminate` answers a change of the node: dC = -C dJ C, dG_e = C (dN_eo' - dJ G_e), ..."""
    left, right, offset, covariance = conditional
    precision, linear, edge_left, edge_right = change
    left_shift = la.transpose(edge_left) - la.matmul(precision, left)
    right_shift = edge_right - la.matmul(precision, right)
    shift = linear - la.matvec(precision, offset)
    moved = Conditional(
        la.matmul(covariance, left_shift),
        la.matmul(covariance, right_shift),
        la.matvec(covariance, shift),
        -la.symmetric(la.matmul(la.matmul(covariance, precision), covariance)),
    )
    left_t, right_t, edge_right_t = la.transpose(left), la.transpose(right), la.transpose(edge_right)
    messages = Messages(
        la.symmetric(la.matmul(left_t, left_shift) + la.matmul(edge_left, left)),
        la.symmetric(la.matmul(right_t, right_shift) + la.matmul(edge_right_t, right)),
        la.matvec(left_t, shift) + la.matvec(edge_left, offset),
        la.matvec(right_t, shift) + la.matvec(edge_right_t, offset),
        la.matmul(left_t, right_shift) + la.matmul(edge_left, right),
    )
    return moved, messages


def restore_change(
    la: Algebra,
    conditional: Conditional,
    around: Neighbours,
    cross: tuple[Array, Array],
    change: Conditional,
    change_around: Neighbours,
) -> NodeMoments:
    """How `restore` answers changes of the conditional and of the neighbours' moments.

    `cross` are the node's covariances with them, as `restore` gave them.
    """
    left, right, _, _ = conditional
    d_left, d_right, d_offset, d_own = change
    mean = (
        d_offset
        + la.matvec(d_left, around.mean_left)
        + la.matvec(d_right, around.mean_right)
        + la.matvec(left, change_around.mean_left)
        + la.matvec(right, change_around.mean_right)
    )
    # What the neighbours' change alone would do, then what the gains' does
    cross_left = la.matmul(change_around.covariance_left, la.transpose(left)) + la.matmul(
        change_around.cross, la.transpose(right)
    )
    cross_right = la.matmul(left, change_around.cross) + la.matmul(right, change_around.covariance_right)
    explained = la.matmul(left, cross_left) + la.matmul(right, la.transpose(cross_right))
    gained = la.matmul(d_left, cross[0]) + la.matmul(d_right, la.transpose(cross[1]))
    covariance = d_own + la.symmetric(explained + gained + la.transpose(gained))
    cross_left = (
        cross_left
        + la.matmul(around.covariance_left, la.transpose(d_left))
        + la.matmul(around.cross, la.transpose(d_right))
    )
    cross_right = cross_right + la.matmul(d_left, around.cross) + la.matmul(d_right, around.covariance_right)
    return NodeMoments(mean, covariance, cross_left, cross_right)


class Sampler(NamedTuple):
    """z_o = left z_e + right z_r + offset + root' noise, with root' root the covariance."""

    left: Float[Array, "*nodes n n"]
    right: Float[Array, "*nodes n n"]
    offset: Float[Array, "*nodes n"]
    root: Float[Array, "*nodes n n"]


def eliminate_to_sample(la: Algebra, node: Node) -> tuple[Sampler, Messages]:
    """`eliminate` with a square root of the covariance in place of the covariance."""
    root = la.inverse_cholesky(node.precision)
    conditional = _conditional(la, node, la.matmul(la.transpose(root), root))
    return Sampler(*conditional[:3], root), _messages(la, node, conditional)


def draw(la: Algebra, sampler: Sampler, noise: Array, left: Array, right: Array) -> Float[Array, "*nodes n"]:
    """The node's value, given its neighbours'."""
    explained = la.matvec(sampler.left, left) + la.matvec(sampler.right, right)
    return explained + sampler.offset + la.matvec(la.transpose(sampler.root), noise)
