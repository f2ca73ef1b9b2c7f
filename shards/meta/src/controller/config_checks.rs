//! What settings a resource may have. One place for topics that are created and for configs that
//! are altered; codes and messages are Kafka's.

use wire::ErrorCode;

use super::{Controller, Failure, Outcome};
use crate::config::{
    ConfigError, Key, ResourceKind, Scope, Settings, TopicConfig, UpdateMode, boolean, find, list,
    nearest_in,
};
use crate::node::NodeId;

/// Longest value; it must fit a string of the metadata log.
const VALUE_BYTES_MAX: usize = 32_767;

/// What a client metrics subscription may select clients by.
const CLIENT_SELECTORS: [&str; 6] = [
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];

impl Controller<'_> {
    /// Whether a resource exists and can have settings.
    pub(super) fn check_resource(&self, kind: ResourceKind, name: &str) -> Outcome<()> {
        let no_default = |what: &str| {
            let message = format!("Default {what} resources are not allowed.");
            Err(Failure::new(ErrorCode::InvalidRequest, message))
        };
        match kind {
            ResourceKind::Topic if name.is_empty() => no_default("topic"),
            ResourceKind::Topic if self.image.topic_by_name(name).is_none() => {
                let message = format!("The topic '{name}' does not exist.");
                Err(Failure::new(ErrorCode::UnknownTopicOrPartition, message))
            }
            ResourceKind::Broker if name.is_empty() => Ok(()),
            ResourceKind::Broker => {
                let id: i32 = name.parse().map_err(|_| {
                    let message = format!("Node id must be an integer, but it is: {name}");
                    Failure::new(ErrorCode::InvalidRequest, message)
                })?;
                match self.image.node(NodeId(id)) {
                    Some(_) => Ok(()),
                    None => Err(Failure::new(
                        ErrorCode::BrokerIdNotRegistered,
                        format!("No broker with id {id} found."),
                    )),
                }
            }
            ResourceKind::Group if name.is_empty() => no_default("group"),
            ResourceKind::ClientMetrics if name.is_empty() => no_default("client metrics"),
            ResourceKind::BrokerLogger => {
                let message = "Log levels cannot be changed while the broker runs.";
                Err(Failure::new(ErrorCode::InvalidRequest, message))
            }
            ResourceKind::Topic | ResourceKind::Group | ResourceKind::ClientMetrics => Ok(()),
        }
    }

    /// Checks all settings that a resource would have: names, values, and how they go together.
    pub(super) fn check_settings(
        &self,
        kind: ResourceKind,
        name: &str,
        settings: &Settings,
    ) -> Outcome<()> {
        let scope = scope_of(kind);
        let mut keys: Vec<(&Key, &str)> = Vec::with_capacity(settings.len());
        for (key, value) in settings {
            let found = find(scope, key).ok_or_else(|| unknown_key(scope, key))?;
            keys.push((found, value));
            if value.len() > VALUE_BYTES_MAX {
                return Err(invalid(format!(
                    "The configuration value cannot be added because it exceeds the maximum value \
                     size of {VALUE_BYTES_MAX} bytes."
                )));
            }
        }
        match kind {
            ResourceKind::Topic => self.check_topic(&keys, settings),
            ResourceKind::Broker => check_broker(name, settings, &keys),
            ResourceKind::Group => self.check_group(&keys),
            ResourceKind::ClientMetrics => check_client_metrics(&keys),
            ResourceKind::BrokerLogger => Ok(()),
        }
    }

    fn check_topic(&self, keys: &[(&Key, &str)], settings: &Settings) -> Outcome<()> {
        for (key, value) in keys {
            key.validate(value).map_err(|error| invalid(error.to_string()))?;
        }
        if settings.get("remote.storage.enable").and_then(|v| boolean(v)) == Some(true) {
            return Err(invalid(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured \
                 with remote log storage.",
            ));
        }
        let lags = ["min.compaction.lag.ms", "max.compaction.lag.ms"];
        if lags.iter().any(|lag| settings.contains_key(*lag)) {
            let config = TopicConfig::with_overrides(self.layers(), settings);
            let (min, max) = (config.min_compaction_lag_ms, config.max_compaction_lag_ms);
            if min > max {
                return Err(invalid(format!(
                    "conflict topic config setting min.compaction.lag.ms ({min}) > \
                     max.compaction.lag.ms ({max})"
                )));
            }
        }
        Ok(())
    }

    /// Group settings have bounds that the brokers set.
    fn check_group(&self, keys: &[(&Key, &str)]) -> Outcome<()> {
        for (key, value) in keys {
            let number = value.trim().parse::<i64>();
            if let (Some((min, max)), Ok(number)) = (self.group_bounds(key.name), number)
                && !(min..=max).contains(&number)
            {
                let message = match (min, max) {
                    (i64::MIN, _) => format!("{} must be at most {max}.", key.name),
                    (_, i64::MAX) => format!("{} must be at least {min}.", key.name),
                    _ => format!("{} must be in the range {min} to {max} inclusive.", key.name),
                };
                return Err(invalid(message));
            }
            key.validate(value).map_err(|error| invalid(error.to_string()))?;
        }
        Ok(())
    }

    /// `consumer.session.timeout.ms` lies between `group.consumer.min.session.timeout.ms` and
    /// `group.consumer.max.session.timeout.ms`, and so on.
    fn group_bounds(&self, key: &str) -> Option<(i64, i64)> {
        let (family, rest) = key.split_once('.')?;
        let rest = rest.strip_prefix("num.").unwrap_or(rest);
        let bound = |which: &str| {
            let key = find(Scope::Broker, &format!("group.{family}.{which}.{rest}"))?;
            self.layers().broker_value(key)?.trim().parse::<i64>().ok()
        };
        match (bound("min"), bound("max")) {
            (None, None) => None,
            (min, max) => Some((min.unwrap_or(i64::MIN), max.unwrap_or(i64::MAX))),
        }
    }
}

/// A value that is a list has this many items; used for the keys that are lists.
pub(super) fn items(value: &str) -> Vec<&str> {
    list(value)
}

pub(super) fn scope_of(kind: ResourceKind) -> Scope {
    match kind {
        ResourceKind::Topic => Scope::Topic,
        ResourceKind::Broker | ResourceKind::BrokerLogger => Scope::Broker,
        ResourceKind::Group => Scope::Group,
        ResourceKind::ClientMetrics => Scope::ClientMetrics,
    }
}

/// Broker settings answer INVALID_REQUEST, as Kafka's brokers do before the controller sees them.
fn check_broker(name: &str, settings: &Settings, keys: &[(&Key, &str)]) -> Outcome<()> {
    let request = |message: String| Err(Failure::new(ErrorCode::InvalidRequest, message));
    let named = |wrong: &dyn Fn(&str, &Key) -> bool| -> Option<String> {
        let all = settings.keys().zip(keys);
        let names: Vec<&str> = all
            .filter(|(name, (key, _))| wrong(name, key))
            .map(|(name, _)| name.as_str())
            .collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    if let Some(names) = named(&|_, key| key.update == UpdateMode::ReadOnly) {
        return request(format!("Cannot update these configs dynamically: [{names}]"));
    }
    let is_security = |key: &Key| key.name.starts_with("ssl.") || key.name.starts_with("sasl.");
    if let Some(names) = named(&|name, key| is_security(key) && name == key.name) {
        return request(format!(
            "These security configs can be dynamically updated only per-listener using the listener \
             prefix: [{names}]"
        ));
    }
    if name.is_empty()
        && let Some(names) = named(&|_, key| key.update == UpdateMode::PerBroker)
    {
        return request(format!(
            "Cannot update these configs at default cluster level, broker id must be specified: \
             [{names}]"
        ));
    }
    for (key, value) in keys {
        if let Err(error) = key.validate(value) {
            return request(error.to_string());
        }
    }
    Ok(())
}

fn check_client_metrics(keys: &[(&Key, &str)]) -> Outcome<()> {
    for (key, value) in keys {
        if let Err(error) = key.validate(value) {
            let message = match error {
                ConfigError::InvalidValue { value, .. } if key.name == "interval.ms" => format!(
                    "Invalid value {value} for interval.ms, interval must be between 100 and \
                     3600000 (1 hour)"
                ),
                other => other.to_string(),
            };
            return Err(Failure::new(ErrorCode::InvalidRequest, message));
        }
        if key.name == "match" {
            let is_selector = |item: &&str| {
                let selector = item.split_once('=');
                selector.is_some_and(|(name, _)| CLIENT_SELECTORS.contains(&name.trim()))
            };
            if let Some(bad) = items(value).iter().find(|item| !is_selector(item)) {
                return Err(invalid(format!("Illegal client matching pattern: {bad}")));
            }
        }
    }
    Ok(())
}

fn unknown_key(scope: Scope, name: &str) -> Failure {
    // A topic key on a broker: what was meant is the broker key that gives its default.
    let synonym = match scope {
        Scope::Broker => find(Scope::Topic, name).and_then(|key| key.synonyms.first().copied()),
        _ => None,
    };
    let meant = synonym.or_else(|| nearest_in(scope, name));
    let hint = meant.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    match scope {
        Scope::ClientMetrics => Failure::new(
            ErrorCode::InvalidRequest,
            format!("Unknown client metrics configuration: {name}{hint}"),
        ),
        _ => invalid(format!("Unknown {} config name: {name}{hint}", scope.name())),
    }
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::InvalidConfig, message)
}
