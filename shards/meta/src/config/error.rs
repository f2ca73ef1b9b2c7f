//! What can be wrong with a configuration, with the remedy in the text.

/// A name or value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("unknown configuration key {name}{}", hint(.meant))]
    UnknownKey {
        name: String,
        /// The known key that was probably meant.
        meant: Option<String>,
    },
    /// Kafka's wording, since tools show it.
    #[error("Invalid value {value} for configuration {key}: {reason}")]
    InvalidValue { key: String, value: String, reason: String },
    #[error("{0}")]
    Conflict(String),
    #[error("line {line}: {reason}")]
    Line { line: usize, reason: String },
    #[error("line {line}: {error}")]
    At { line: usize, error: Box<ConfigError> },
}

impl ConfigError {
    pub(super) fn invalid(key: &str, value: impl Into<String>, reason: impl Into<String>) -> Self {
        ConfigError::InvalidValue { key: key.into(), value: value.into(), reason: reason.into() }
    }
}

fn hint(meant: &Option<String>) -> String {
    match meant {
        Some(name) => format!("; did you mean {name}?"),
        None => "; take it out, or look for its name in docs/configuration.md".to_owned(),
    }
}
