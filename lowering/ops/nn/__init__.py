"""The layers of networks: convolution, pooling, normalisation, activations, embeddings."""
