//! Harness that starts Corelane or Apache Kafka, and the suites that run against either.
