"""Fluid's contributed parts."""

from fluidjax.contrib import layers as layers
from fluidjax.contrib import mixed_precision as mixed_precision
from fluidjax.contrib.layers import BasicGRUUnit as BasicGRUUnit
from fluidjax.contrib.layers import BasicLSTMUnit as BasicLSTMUnit
from fluidjax.contrib.layers import basic_gru as basic_gru
from fluidjax.contrib.layers import basic_lstm as basic_lstm
from fluidjax.contrib.mixed_precision import AutoMixedPrecisionLists as AutoMixedPrecisionLists
from fluidjax.contrib.mixed_precision import decorate as decorate
