//! Configuration: the one registry of keys, reading values, and which of several sources wins.
//! Pure: files are read and flags are parsed elsewhere; this module is given their text.
//!
//! A value is looked for in this order: topic override, dynamic setting of the node, dynamic
//! default of the cluster, static (file and flags), built-in default.

mod broker_config;
mod docs;
mod error;
mod key;
mod keys;
mod overrides;
mod resolve;
mod static_config;
mod topic_config;
mod value;

pub use broker_config::{BrokerConfig, GroupsConfig, Listener, TransactionsConfig};
pub use docs::configuration_page;
pub use error::ConfigError;
pub use key::{Check, Effect, Key, Kind, Scope, Section, UpdateMode};
pub use keys::{
    broker_keys, client_metrics_keys, find, group_keys, keys, nearest, nearest_in, sections,
    topic_keys,
};
pub use overrides::{Overrides, Resource, ResourceKind, Settings};
pub use resolve::{
    Entry, Layers, Source, Synonym, resolve_broker, resolve_client_metrics,
    resolve_cluster_default, resolve_group, resolve_new_topic, resolve_topic,
};
pub use static_config::StaticConfig;
pub use topic_config::{RecordValidation, TimestampType, TopicCompression, TopicConfig};
pub use value::{boolean, list};
