//! Cluster metadata: image, deltas, controller managers and the configuration registry.
