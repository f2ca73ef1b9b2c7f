//! What can go wrong between this client and a cluster, and whether trying again can help.

use std::time::Duration;

use wire::ErrorCode;

use crate::error::Error;

#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// Not one of the bootstrap brokers could be connected to.
    #[error("cannot connect to {tried}: {reason}")]
    NoBroker { tried: String, reason: String },
    /// A connection broke, or could not be made.
    #[error("{peer}: {reason}")]
    Connection { peer: String, reason: String },
    #[error("no answer from {peer} within {} s", wait.as_secs())]
    NoAnswer { peer: String, wait: Duration },
    #[error("{peer} speaks no version of {api} that this program knows")]
    Version { peer: String, api: &'static str },
    /// A broker answered with an error code.
    #[error("{what}: {}", describe(*code, message.as_deref()))]
    Broker { what: String, code: i16, message: Option<String> },
    #[error("{peer} sent an answer that cannot be read: {reason}")]
    Garbled { peer: String, reason: String },
    /// This program asked for something the protocol cannot say.
    #[error("{0}")]
    Request(String),
}

impl ClientError {
    pub fn broker(what: impl Into<String>, code: i16, message: Option<&str>) -> Self {
        let message = message.map(str::to_owned).filter(|message| !message.is_empty());
        ClientError::Broker { what: what.into(), code, message }
    }

    /// `Ok` for code 0.
    pub fn check(what: impl Into<String>, code: i16, message: Option<&str>) -> Result<(), Self> {
        if code == 0 { Ok(()) } else { Err(ClientError::broker(what, code, message)) }
    }

    pub fn retriable(&self) -> bool {
        match self {
            ClientError::NoBroker { .. }
            | ClientError::Connection { .. }
            | ClientError::NoAnswer { .. } => true,
            ClientError::Broker { code, .. } => {
                ErrorCode::from_code(*code).is_some_and(ErrorCode::retriable)
            }
            ClientError::Version { .. } | ClientError::Garbled { .. } | ClientError::Request(_) => {
                false
            }
        }
    }

    /// The broker's code, if it was one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Broker { code, .. } => ErrorCode::from_code(*code),
            _ => None,
        }
    }
}

/// `TOPIC_ALREADY_EXISTS (Topic 'a' already exists.)`; the broker's text if it sent one.
fn describe(code: i16, message: Option<&str>) -> String {
    let Some(known) = ErrorCode::from_code(code) else {
        return format!("error {code} ({})", message.unwrap_or("not known to this program"));
    };
    format!("{} ({})", known.name(), message.unwrap_or(known.message()))
}

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        match &error {
            ClientError::NoBroker { .. } => Error::unreachable(
                error,
                "check that a broker runs there, or name others with --bootstrap HOST:PORT",
            ),
            ClientError::Connection { .. } | ClientError::NoAnswer { .. } => Error::unreachable(
                error,
                "check the broker and the address it advertises, or raise --timeout",
            ),
            ClientError::Version { .. } => {
                Error::refused(error, "use a broker of Kafka 2.1 or newer")
            }
            ClientError::Garbled { .. } => {
                Error::unreachable(error, "check that this is a Kafka port without TLS or SASL")
            }
            ClientError::Request(_) => Error::refused(error, ""),
            ClientError::Broker { .. } => {
                let remedy = error.code().map_or("", remedy);
                Error::refused(error, remedy)
            }
        }
    }
}

/// What a person at the command line can do about the refusals seen most.
fn remedy(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::UnknownTopicOrPartition => "`corelane topic list` shows what there is",
        ErrorCode::TopicAlreadyExists => "choose another name, or add --if-not-exists",
        ErrorCode::InvalidReplicationFactor => {
            "ask for no more replicas than there are brokers (--replication-factor)"
        }
        ErrorCode::InvalidPartitions => "a topic has at least one partition and never loses one",
        ErrorCode::OffsetOutOfRange => "use --from earliest or --from latest",
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => {
            "raise max.message.bytes of the topic (`corelane topic alter`)"
        }
        ErrorCode::TopicDeletionDisabled => "set delete.topic.enable=true on the brokers",
        _ => "",
    }
}
