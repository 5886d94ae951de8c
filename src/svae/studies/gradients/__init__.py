r"""How wrong is each gradient through inference, before and after inference has converged?

The loss of a sequence is the one that training minimises,

$$ \ell = E_{q(\theta)} \mathrm{KL}(q(z) \,\|\, p(z \mid \theta)) + f(z), \qquad z \sim q
   \text{ with fixed noise}, $$

with $f$ what the reconstruction costs. Its gradient is taken with respect to what the encoder and the
graphical model hand to inference: the potentials, and the expected statistics of the parameters. After L
sweeps, each way to pass gradients through inference gives an estimate $g_L$; the truth $g_*$ is the implicit
gradient at convergence. Two questions, each for a new model and for one that has learned:

1. How large is $\|g_L - g_*\|$, relative to the error of `NoSolve` after as many sweeps?
2. Where inference has converged, how does $\|g - g_*\| / \|g_*\|$ fall with the number of belief
   propagation passes that are spent on the adjoint's linear system?

All of it is in double precision.
"""
