//! The Kafka protocol: framing, generated codec, record batches, compression, error codes.
