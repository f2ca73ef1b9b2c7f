//! Which value counts, where it comes from and what it hides: the answer of DescribeConfigs.
//! Order: topic or group override, node, cluster default, static, built-in default.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::key::{Key, Kind, Scope, UpdateMode};
use super::keys;
use super::overrides::{Overrides, ResourceKind, Settings};
use super::static_config::StaticConfig;

/// Where a value comes from. Codes are those of DescribeConfigs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    DynamicTopic,
    DynamicBroker,
    DynamicDefaultBroker,
    StaticBroker,
    Default,
    DynamicClientMetrics,
    DynamicGroup,
}

impl Source {
    pub fn code(self) -> i8 {
        match self {
            Source::DynamicTopic => 1,
            Source::DynamicBroker => 2,
            Source::DynamicDefaultBroker => 3,
            Source::StaticBroker => 4,
            Source::Default => 5,
            Source::DynamicClientMetrics => 7,
            Source::DynamicGroup => 8,
        }
    }

    /// Kafka's name of the source.
    pub fn name(self) -> &'static str {
        match self {
            Source::DynamicTopic => "DYNAMIC_TOPIC_CONFIG",
            Source::DynamicBroker => "DYNAMIC_BROKER_CONFIG",
            Source::DynamicDefaultBroker => "DYNAMIC_DEFAULT_BROKER_CONFIG",
            Source::StaticBroker => "STATIC_BROKER_CONFIG",
            Source::Default => "DEFAULT_CONFIG",
            Source::DynamicClientMetrics => "DYNAMIC_CLIENT_METRICS_CONFIG",
            Source::DynamicGroup => "DYNAMIC_GROUP_CONFIG",
        }
    }
}

/// One place that gives a value, as it is written there (a value in hours stays in hours).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synonym {
    pub name: Cow<'static, str>,
    /// `None` for a secret.
    pub value: Option<String>,
    pub source: Source,
}

/// One key of a resource with the value that counts.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key's name, with the listener prefix if it was set under one.
    pub name: Cow<'static, str>,
    pub key: &'static Key,
    /// `None` when nothing is set, and for a secret.
    pub value: Option<String>,
    pub source: Source,
    pub read_only: bool,
    pub sensitive: bool,
    /// Every place that gives a value, the one that counts first.
    pub synonyms: Vec<Synonym>,
}

/// What a look-up needs to know: what was set while running, what was set at the start, and by
/// which node's eyes it looks.
#[derive(Clone, Copy, Debug)]
pub struct Layers<'a> {
    pub dynamic: &'a Overrides,
    pub fixed: &'a StaticConfig,
    pub node: i32,
}

/// Every key of a topic, sorted by name.
pub fn resolve_topic(layers: Layers<'_>, topic: &str) -> Vec<Entry> {
    let own = layers.dynamic.of(ResourceKind::Topic, topic);
    resolve_all(layers, Scope::Topic, own, Source::DynamicTopic)
}

/// Every key of a topic that does not exist yet and will have these settings, sorted by name.
pub fn resolve_new_topic(layers: Layers<'_>, own: &Settings) -> Vec<Entry> {
    resolve_all(layers, Scope::Topic, Some(own), Source::DynamicTopic)
}

/// Every key of a client metrics subscription, sorted by name.
pub fn resolve_client_metrics(layers: Layers<'_>, name: &str) -> Vec<Entry> {
    let own = layers.dynamic.of(ResourceKind::ClientMetrics, name);
    resolve_all(layers, Scope::ClientMetrics, own, Source::DynamicClientMetrics)
}

/// Every key of a group, sorted by name.
pub fn resolve_group(layers: Layers<'_>, group: &str) -> Vec<Entry> {
    let own = layers.dynamic.of(ResourceKind::Group, group);
    resolve_all(layers, Scope::Group, own, Source::DynamicGroup)
}

/// Every broker key as the node of `layers` sees it, sorted by name. Listener-prefixed keys that
/// are set follow at the end.
pub fn resolve_broker(layers: Layers<'_>) -> Vec<Entry> {
    let listed = keys::broker_keys().iter().filter(|key| !key.hidden);
    let mut entries: Vec<Entry> = listed.map(|key| broker_entry(layers, key)).collect();
    let layer_names = (0..DYNAMIC_AND_STATIC.len()).flat_map(|layer| layers.names(layer));
    let prefixed: BTreeSet<&str> =
        layer_names.filter(|name| name.starts_with(LISTENER_PREFIX)).collect();
    entries.extend(prefixed.into_iter().filter_map(|name| {
        let key = keys::find(Scope::Broker, name)?;
        let name: Cow<'static, str> = Cow::Owned(name.to_string());
        Some(entry(name.clone(), key, layers.set_places(&[name]), key.default))
    }));
    entries
}

/// Only what is set as the cluster's default for all brokers.
pub fn resolve_cluster_default(dynamic: &Overrides) -> Vec<Entry> {
    let settings = dynamic.of(ResourceKind::Broker, "");
    let known = settings.into_iter().flatten().filter_map(|(name, value)| {
        let key = keys::find(Scope::Broker, name)?;
        let name: Cow<'static, str> = Cow::Owned(name.clone());
        let source = Source::DynamicDefaultBroker;
        let place = Synonym { name: name.clone(), value: Some(value.clone()), source };
        Some(entry(name, key, vec![place], key.default))
    });
    known.collect()
}

impl<'a> Layers<'a> {
    /// The text that counts for a topic key on a topic; `None` for the topic means: without
    /// overrides.
    pub(crate) fn topic_value(&self, key: &'static Key, own: Option<&'a Settings>) -> Cow<'a, str> {
        if let Some(value) = own.and_then(|settings| settings.get(key.name)) {
            return Cow::Borrowed(value);
        }
        let fallback = || Cow::Borrowed(key.default.unwrap_or_default());
        self.first_set(key.synonyms)
            .map_or_else(fallback, |(name, value)| converted(value, name, key.name))
    }

    /// The text that counts for a broker key; `None` when nothing is set and there is no default.
    pub(crate) fn broker_value(&self, key: &'static Key) -> Option<Cow<'a, str>> {
        let own = [key.name];
        let names = if key.synonyms.is_empty() { &own[..] } else { key.synonyms };
        match self.first_set(names) {
            Some((name, value)) => Some(converted(value, name, key.name)),
            None => key.default.map(Cow::Borrowed),
        }
    }

    /// The first set value in order of sources, then of names; built-in defaults are not looked at.
    fn first_set(&self, names: &[&'static str]) -> Option<(&'static str, &'a str)> {
        (0..DYNAMIC_AND_STATIC.len())
            .flat_map(|layer| names.iter().map(move |name| (layer, *name)))
            .find_map(|(layer, name)| self.at(layer, name).map(|value| (name, value)))
    }

    fn at(&self, layer: usize, name: &str) -> Option<&'a str> {
        match DYNAMIC_AND_STATIC.get(layer)? {
            Source::StaticBroker => self.fixed.value(name),
            source => self.settings(*source)?.get(name).map(String::as_str),
        }
    }

    fn names(&self, layer: usize) -> Vec<&'a str> {
        match DYNAMIC_AND_STATIC.get(layer) {
            Some(Source::StaticBroker) => self.fixed.iter().map(|(name, _)| name).collect(),
            Some(source) => self
                .settings(*source)
                .into_iter()
                .flatten()
                .map(|(name, _)| name.as_str())
                .collect(),
            None => Vec::new(),
        }
    }

    /// The dynamic settings of this node, or those that all brokers share.
    fn settings(&self, source: Source) -> Option<&'a Settings> {
        let kind = ResourceKind::Broker;
        match source {
            _ if !self.dynamic.has(kind) => None,
            Source::DynamicBroker => self.dynamic.of(kind, &self.node.to_string()),
            _ => self.dynamic.of(kind, ""),
        }
    }

    /// Every place that sets a value under one of these names, in order of sources, then of names.
    fn set_places(&self, names: &[Cow<'static, str>]) -> Vec<Synonym> {
        let mut places = Vec::new();
        for (layer, source) in DYNAMIC_AND_STATIC.iter().enumerate() {
            for name in names {
                if let Some(value) = self.at(layer, name) {
                    let value = Some(value.to_string());
                    places.push(Synonym { name: name.clone(), value, source: *source });
                }
            }
        }
        places
    }

    /// Every place that gives a value for these broker keys, the built-in defaults last.
    fn places(&self, names: &[&'static str]) -> Vec<Synonym> {
        let as_names: Vec<Cow<'static, str>> = names.iter().map(|n| Cow::Borrowed(*n)).collect();
        let mut places = self.set_places(&as_names);
        let nothing_set = places.is_empty();
        for (at, name) in names.iter().enumerate() {
            let default = keys::find(Scope::Broker, name).and_then(|key| key.default);
            // Kafka leaves out the built-in defaults of fallback names (log.retention.hours) as
            // long as nothing is set; tools compare the list.
            let fallback_alone = nothing_set && at > 0 && places.is_empty();
            if let Some(default) = default.filter(|_| !fallback_alone) {
                places.push(default_place(name, default));
            }
        }
        places
    }
}

fn default_place(name: &'static str, value: &str) -> Synonym {
    let source = Source::Default;
    Synonym { name: Cow::Borrowed(name), value: Some(value.into()), source }
}

const LISTENER_PREFIX: &str = "listener.name.";

const DYNAMIC_AND_STATIC: [Source; 3] =
    [Source::DynamicBroker, Source::DynamicDefaultBroker, Source::StaticBroker];

fn resolve_all(
    layers: Layers<'_>,
    scope: Scope,
    own: Option<&Settings>,
    own_source: Source,
) -> Vec<Entry> {
    let listed = keys::keys(scope).iter().filter(|key| !key.hidden);
    listed
        .map(|key| {
            let set = own.and_then(|settings| settings.get(key.name)).cloned();
            let own_place =
                set.map(|v| Synonym { name: key.name.into(), value: Some(v), source: own_source });
            let mut places: Vec<Synonym> = own_place.into_iter().collect();
            places.extend(layers.places(key.synonyms));
            // Group keys without a broker key name themselves.
            let names_itself = scope == Scope::Group && key.synonyms.is_empty();
            if let Some(default) = key.default.filter(|_| names_itself) {
                places.push(default_place(key.name, default));
            }
            entry(key.name.into(), key, places, key.default)
        })
        .collect()
}

fn broker_entry(layers: Layers<'_>, key: &'static Key) -> Entry {
    let own = [key.name];
    let names = if key.synonyms.is_empty() { &own[..] } else { key.synonyms };
    entry(key.name.into(), key, layers.places(names), key.default)
}

fn entry(
    name: Cow<'static, str>,
    key: &'static Key,
    mut synonyms: Vec<Synonym>,
    default: Option<&str>,
) -> Entry {
    let first = synonyms.first();
    let source = first.map_or(Source::Default, |place| place.source);
    let mut value = match first {
        Some(place) => {
            let text = place.value.as_deref().unwrap_or_default();
            Some(converted(text, &place.name, key.name).into_owned())
        }
        None => default.map(String::from),
    };
    if key.sensitive {
        value = None;
        synonyms.iter_mut().for_each(|place| place.value = None);
    }
    let read_only = key.scope == Scope::Broker && key.update == UpdateMode::ReadOnly;
    Entry { name, key, value, source, read_only, sensitive: key.sensitive, synonyms }
}

/// A value in the unit of the key that asks: hours and minutes become milliseconds, a negative time
/// means "never" and stays -1.
fn converted<'a>(value: &'a str, from: &str, to: &str) -> Cow<'a, str> {
    let factor = match from {
        _ if !to.ends_with(".ms") => return Cow::Borrowed(value),
        _ if from.ends_with(".hours") => 3_600_000,
        _ if from.ends_with(".minutes") => 60_000,
        _ => return Cow::Borrowed(value),
    };
    match super::value::number(Kind::Int, value) {
        Some(n) if n < 0 => Cow::Borrowed("-1"),
        Some(n) => Cow::Owned((n * factor).to_string()),
        None => Cow::Borrowed(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Resource;

    #[test]
    fn secrets_are_never_shown_and_listener_keys_keep_their_prefix() {
        let name = "listener.name.internal.ssl.key.password";
        let mut fixed = StaticConfig::default();
        let mut dynamic = Overrides::default();
        fixed.set("ssl.key.password", "secret-1").unwrap();
        fixed.set(name, "secret-2").unwrap();
        dynamic.set(&Resource::new(ResourceKind::Broker, "5"), name, Some("secret-3"));
        dynamic.set(&Resource::new(ResourceKind::Broker, ""), "sasl.jaas.config", Some("secret-4"));
        let entries = resolve_broker(Layers { dynamic: &dynamic, fixed: &fixed, node: 5 });
        let of = |name: &str| entries.iter().find(|entry| entry.name == name).unwrap();
        let sources = |name: &str| -> Vec<i8> {
            of(name).synonyms.iter().map(|synonym| synonym.source.code()).collect()
        };
        assert_eq!(sources(name), [2, 4]);
        assert_eq!(of(name).key.name, "ssl.key.password");
        assert_eq!(sources("ssl.key.password"), [4]);
        assert_eq!(sources("sasl.jaas.config"), [3]);
        assert!(entries.iter().filter(|entry| entry.sensitive).all(|entry| entry.value.is_none()));
        let shown = format!("{:?} {:?}", entries, resolve_cluster_default(&dynamic));
        assert!(!shown.contains("secret-"), "a secret is shown");
    }
}
