//! What was set while the cluster runs: the settings of each resource, as the metadata log holds
//! them. Part of the image; one writer, the controller.

use std::collections::BTreeMap;

use ahash::AHashMap;

/// The settings of one resource, by key.
pub type Settings = BTreeMap<String, String>;

/// Kinds of resource; codes are those of the config APIs and of the metadata log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResourceKind {
    Topic,
    Broker,
    BrokerLogger,
    ClientMetrics,
    Group,
}

impl ResourceKind {
    pub fn code(self) -> i8 {
        match self {
            ResourceKind::Topic => 2,
            ResourceKind::Broker => 4,
            ResourceKind::BrokerLogger => 8,
            ResourceKind::ClientMetrics => 16,
            ResourceKind::Group => 32,
        }
    }

    pub fn from_code(code: i8) -> Option<Self> {
        Some(match code {
            2 => ResourceKind::Topic,
            4 => ResourceKind::Broker,
            8 => ResourceKind::BrokerLogger,
            16 => ResourceKind::ClientMetrics,
            32 => ResourceKind::Group,
            _ => return None,
        })
    }
}

/// Something that has settings. A broker resource without a name is the default of all brokers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    pub kind: ResourceKind,
    pub name: String,
}

impl Resource {
    pub fn new(kind: ResourceKind, name: impl Into<String>) -> Self {
        Resource { kind, name: name.into() }
    }

    pub fn topic(name: impl Into<String>) -> Self {
        Resource::new(ResourceKind::Topic, name)
    }
}

/// All dynamic settings of the cluster. A resource without settings is not held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    by_kind: BTreeMap<ResourceKind, AHashMap<String, Settings>>,
}

impl Overrides {
    /// The settings of a resource, if it has any.
    pub fn of(&self, kind: ResourceKind, name: &str) -> Option<&Settings> {
        self.by_kind.get(&kind)?.get(name)
    }

    /// Whether any resource of a kind has settings.
    pub fn has(&self, kind: ResourceKind) -> bool {
        self.by_kind.contains_key(&kind)
    }

    /// Sets one value, or takes it away.
    pub fn set(&mut self, resource: &Resource, key: &str, value: Option<&str>) {
        let named = self.by_kind.entry(resource.kind).or_default();
        match value {
            Some(value) => {
                let settings = named.entry(resource.name.clone()).or_default();
                settings.insert(key.into(), value.into());
            }
            None => {
                if let Some(settings) = named.get_mut(&resource.name) {
                    settings.remove(key);
                    if settings.is_empty() {
                        named.remove(&resource.name);
                    }
                }
            }
        }
        if named.is_empty() {
            self.by_kind.remove(&resource.kind);
        }
    }

    /// Forgets a resource with all its settings; says whether it had any.
    pub fn remove(&mut self, kind: ResourceKind, name: &str) -> bool {
        let Some(named) = self.by_kind.get_mut(&kind) else { return false };
        let had = named.remove(name).is_some();
        if named.is_empty() {
            self.by_kind.remove(&kind);
        }
        had
    }

    /// Names of the resources of a kind that have settings, sorted.
    pub fn names(&self, kind: ResourceKind) -> Vec<&str> {
        let named = self.by_kind.get(&kind);
        let mut names: Vec<&str> =
            named.into_iter().flat_map(|named| named.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names
    }

    /// Every setting as resource kind, name, key and value; sorted, so that a snapshot is stable.
    pub fn all(&self) -> impl Iterator<Item = (ResourceKind, &str, &str, &str)> + '_ {
        self.by_kind.keys().flat_map(move |kind| {
            self.names(*kind).into_iter().flat_map(move |name| {
                let settings = self.of(*kind, name).into_iter().flatten();
                settings.map(move |(key, value)| (*kind, name, key.as_str(), value.as_str()))
            })
        })
    }
}
