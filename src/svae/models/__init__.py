"""Models: deep generative models of sequences that meet one contract."""

from svae.models.base import Batch as Batch
from svae.models.base import Bound as Bound
from svae.models.base import Certificate as Certificate
from svae.models.base import Draws as Draws
from svae.models.base import Latents as Latents
from svae.models.base import Model as Model
from svae.models.base import Reading as Reading
from svae.models.base import Segmentation as Segmentation
from svae.models.discrete_dks import DiscreteDKS as DiscreteDKS
from svae.models.discrete_dks import make_discrete_dks as make_discrete_dks
from svae.models.dks import DKS as DKS
from svae.models.dks import make_dks as make_dks
from svae.models.partial import partly_seen as partly_seen
from svae.models.partial import with_decoder_potentials as with_decoder_potentials
from svae.models.recognition import Recognition as Recognition
from svae.models.recognition import make_recognition as make_recognition
from svae.models.sequential import SequentialModel as SequentialModel
from svae.models.srnn import SRNN as SRNN
from svae.models.srnn import make_srnn as make_srnn
from svae.models.svae import SVAE as SVAE
from svae.models.svae import make_svae as make_svae
from svae.models.svae import with_graph as with_graph
from svae.models.transformer import TransformerVAE as TransformerVAE
from svae.models.transformer import make_transformer_vae as make_transformer_vae
from svae.models.vqvae import VQVAE as VQVAE
from svae.models.vqvae import make_vqvae as make_vqvae
