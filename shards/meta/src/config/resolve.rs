//! Which value counts, where it comes from and what it hides: the answer of DescribeConfigs.
//! Order: topic or group override, node, cluster default, static, built-in default.

use std::borrow::Cow;

use super::key::{Key, Kind, Scope};
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
    pub name: String,
    /// `None` for a secret.
    pub value: Option<String>,
    pub source: Source,
}

/// One key of a resource with the value that counts.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: &'static Key,
    /// `None` when nothing is set, and for a secret.
    pub value: Option<String>,
    pub source: Source,
    pub read_only: bool,
    pub sensitive: bool,
    /// Every place that gives a value, the one that counts first.
    pub synonyms: Vec<Synonym>,
}

/// What a look-up needs to know: what was set while running, what was set at the start, and by which
/// node's eyes it looks.
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

/// Every broker key as the node of `layers` sees it, sorted by name. Listener-prefixed keys that are set
/// follow at the end.
pub fn resolve_broker(layers: Layers<'_>) -> Vec<Entry> {
    let listed = keys::broker_keys().iter().filter(|key| !key.hidden);
    listed.map(|key| broker_entry(layers, key)).collect()
}

/// Only what is set as the cluster's default for all brokers.
pub fn resolve_cluster_default(dynamic: &Overrides) -> Vec<Entry> {
    let settings = dynamic.of(ResourceKind::Broker, "");
    let known = settings.into_iter().flatten().filter_map(|(name, value)| {
        let key = keys::find(Scope::Broker, name)?;
        let source = Source::DynamicDefaultBroker;
        Some(entry(key, vec![(key.name, value.clone(), source)], key.default))
    });
    known.collect()
}

impl<'a> Layers<'a> {
    /// The text that counts for a topic key on a topic; `None` for the topic means: without overrides.
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
        let brokers = |id: &str| self.dynamic.of(ResourceKind::Broker, id);
        let setting = |settings: Option<&'a Settings>| settings?.get(name).map(String::as_str);
        match DYNAMIC_AND_STATIC.get(layer)? {
            Source::DynamicBroker => setting(brokers(&self.node.to_string())),
            Source::DynamicDefaultBroker => setting(brokers("")),
            _ => self.fixed.value(name),
        }
    }

    /// Every place that gives a value for these broker keys, the built-in defaults last.
    fn places(&self, names: &[&'static str]) -> Vec<Place> {
        let mut places = Vec::new();
        for (layer, source) in DYNAMIC_AND_STATIC.iter().enumerate() {
            for name in names {
                if let Some(value) = self.at(layer, name) {
                    places.push((*name, value.to_string(), *source));
                }
            }
        }
        // Kafka leaves out the built-in defaults of fallback names (log.retention.hours) as long as
        // nothing is set; tools compare the list.
        let primary = names.first().copied().unwrap_or_default();
        let nothing_set = places.is_empty();
        for name in names {
            let default = keys::find(Scope::Broker, name).and_then(|key| key.default);
            if let Some(default) = default.filter(|_| {
                !nothing_set || *name == primary || places.iter().any(|(n, ..)| *n == primary)
            }) {
                places.push((*name, default.to_string(), Source::Default));
            }
        }
        places
    }
}

type Place = (&'static str, String, Source);

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
            let set = own.and_then(|settings| settings.get(key.name));
            let mut places: Vec<Place> =
                set.map(|value| (key.name, value.clone(), own_source)).into_iter().collect();
            places.extend(layers.places(key.synonyms));
            // Group keys without a broker key name themselves.
            if let Some(default) =
                key.default.filter(|_| scope == Scope::Group && key.synonyms.is_empty())
            {
                places.push((key.name, default.into(), Source::Default));
            }
            entry(key, places, key.default)
        })
        .collect()
}

fn broker_entry(layers: Layers<'_>, key: &'static Key) -> Entry {
    let own = [key.name];
    let names = if key.synonyms.is_empty() { &own[..] } else { key.synonyms };
    entry(key, layers.places(names), key.default)
}

fn entry(key: &'static Key, places: Vec<Place>, default: Option<&str>) -> Entry {
    let first = places.first();
    let source = first.map_or(Source::Default, |(_, _, source)| *source);
    let value = match first {
        Some((name, value, _)) => Some(converted(value, name, key.name).into_owned()),
        None => default.map(String::from),
    };
    let shown = |value: String| if key.sensitive { None } else { Some(value) };
    Entry {
        key,
        value: value.and_then(shown),
        source,
        read_only: key.scope == Scope::Broker && key.update == super::UpdateMode::ReadOnly,
        sensitive: key.sensitive,
        synonyms: places
            .into_iter()
            .map(|(name, value, source)| Synonym { name: name.into(), value: shown(value), source })
            .collect(),
    }
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
