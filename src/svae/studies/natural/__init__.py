"""How many steps does each gradient need to learn the dynamics, once the networks are trained?

An SVAE with a linear dynamical system. Its networks are pre-trained as in any fit and then frozen; the
posterior of the dynamics begins at the generic first guess, and only that is learned, by

* stochastic descent along the unbiased natural gradient, whose correction flows through inference;
* the same without the correction: the SVI update, biased wherever the encoder's potentials are not what
  the decoder's likelihood would have them be;
* Adam along the plain gradient in unconstrained coordinates.

All see the same batches and the same noise, and all have the same grid of constant step sizes: for natural
gradients the share of the way to the posterior that the batch suggests, for Adam its rate. Shown is the
step size whose curve in the figure is the lowest on average. A second count of steps to each mark takes
whatever step size is there first. The bound is that of all data, always with the same draws of the latent
paths.

How much the correction matters depends on the potentials, so there are several cases: networks that have
learned enough, networks that have only begun, and a decoder that is far from linear.
"""
