//! Changing settings: the whole set (AlterConfigs) or single keys (IncrementalAlterConfigs).
//! Each resource stands or falls alone; a resource with one bad key keeps all its settings.

use ahash::AHashSet;
use wire::ErrorCode;
use wire::messages as m;

use super::config_checks::{items, scope_of};
use super::{Controller, Decision, Failure, Outcome, repeated};
use crate::config::{Key, Kind, Resource, ResourceKind, Settings, find};
use crate::record::MetadataRecord;

/// All settings that a resource shall have; others of it are taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterConfigs {
    /// Resource type code of the request.
    pub resource_type: i8,
    pub resource_name: String,
    pub configs: Vec<(String, Option<String>)>,
}

/// Single changes to a resource's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncrementalAlter {
    /// Resource type code of the request.
    pub resource_type: i8,
    pub resource_name: String,
    pub ops: Vec<ConfigOp>,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigOp {
    pub key: String,
    pub kind: OpKind,
    pub value: Option<String>,
}

/// What to do with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    Set,
    Delete,
    /// Adds items to a list.
    Append,
    /// Takes items out of a list.
    Subtract,
}

impl OpKind {
    /// The operation with this code in an IncrementalAlterConfigs request.
    pub fn from_code(code: i8) -> Option<Self> {
        Some(match code {
            0 => OpKind::Set,
            1 => OpKind::Delete,
            2 => OpKind::Append,
            3 => OpKind::Subtract,
            _ => return None,
        })
    }
}

impl Controller<'_> {
    /// Replaces settings. One answer an item, in the order of the request.
    pub fn alter_configs(
        &self,
        requests: &[AlterConfigs],
        validate_only: bool,
    ) -> Decision<Vec<Outcome<()>>> {
        let ids = requests.iter().map(|r| (r.resource_type, r.resource_name.as_str()));
        let twice = repeated(ids.clone());
        self.alter_each(ids, &twice, validate_only, |at, _, _| {
            let configs = requests.get(at).map(|r| r.configs.as_slice()).unwrap_or_default();
            no_duplicates(configs.iter().map(|(key, _)| key.as_str()))?;
            let nulls = configs.iter().filter(|(_, value)| value.is_none());
            no_nulls(nulls.map(|(key, _)| key.as_str()))?;
            let pairs = configs.iter().filter_map(|(k, v)| Some((k.clone(), v.clone()?)));
            Ok(pairs.collect())
        })
    }

    /// Changes single keys. One answer an item, in the order of the request.
    pub fn incremental_alter_configs(
        &self,
        requests: &[IncrementalAlter],
        validate_only: bool,
    ) -> Decision<Vec<Outcome<()>>> {
        let ids = requests.iter().map(|r| (r.resource_type, r.resource_name.as_str()));
        let twice = repeated(ids.clone());
        self.alter_each(ids, &twice, validate_only, |at, kind, mut settings| {
            let ops = requests.get(at).map(|r| r.ops.as_slice()).unwrap_or_default();
            no_duplicates(ops.iter().map(|op| op.key.as_str()))?;
            let nulls = ops.iter().filter(|op| op.kind != OpKind::Delete && op.value.is_none());
            no_nulls(nulls.map(|op| op.key.as_str()))?;
            for op in ops {
                self.apply_op(kind, op, &mut settings)?;
            }
            Ok(settings)
        })
    }

    /// Lets `change` make the next settings of each resource from those it has, checks them, and
    /// writes the difference.
    fn alter_each<'r>(
        &self,
        ids: impl Iterator<Item = (i8, &'r str)>,
        twice: &AHashSet<(i8, &'r str)>,
        validate_only: bool,
        change: impl Fn(usize, ResourceKind, Settings) -> Outcome<Settings>,
    ) -> Decision<Vec<Outcome<()>>> {
        let mut records = Vec::new();
        let mut outcome = Vec::new();
        for (at, id) in ids.enumerate() {
            let altered = self.resource(id, twice).and_then(|resource| {
                let now = self.image.configs(&resource).cloned().unwrap_or_default();
                let next = change(at, resource.kind, now.clone())?;
                // Settings that stay were checked when they were set; rules between keys need all.
                self.check_settings(resource.kind, &resource.name, &next)?;
                difference(&resource, &now, &next, &mut records);
                Ok(())
            });
            outcome.push(altered);
        }
        if validate_only {
            records.clear();
        }
        Decision { records, outcome }
    }

    fn resource(&self, id: (i8, &str), twice: &AHashSet<(i8, &str)>) -> Outcome<Resource> {
        let bad = |message: String| Err(Failure::new(ErrorCode::InvalidRequest, message));
        if twice.contains(&id) {
            return bad("Each resource must appear at most once.".into());
        }
        let Some(kind) = ResourceKind::from_code(id.0) else {
            return bad(format!("Unsupported resource type {}.", id.0));
        };
        self.check_resource(kind, id.1)?;
        Ok(Resource::new(kind, id.1))
    }

    fn apply_op(&self, kind: ResourceKind, op: &ConfigOp, settings: &mut Settings) -> Outcome<()> {
        let value = op.value.as_deref().unwrap_or_default();
        match op.kind {
            OpKind::Set => {
                settings.insert(op.key.clone(), value.to_string());
            }
            OpKind::Delete => {
                settings.remove(&op.key);
            }
            OpKind::Append | OpKind::Subtract => {
                let appends = op.kind == OpKind::Append;
                let found = find(scope_of(kind), &op.key).filter(|key| key.kind == Kind::List);
                let Some(key) = found else {
                    let name = if appends { "APPEND" } else { "SUBTRACT" };
                    let message =
                        format!("Can't {name} to key {} because its type is not LIST.", op.key);
                    return Err(Failure::new(ErrorCode::InvalidConfig, message));
                };
                let now = self.list_value(kind, key, settings);
                let mut list: Vec<&str> = items(&now);
                if appends {
                    for item in items(value) {
                        if !list.contains(&item) {
                            list.push(item);
                        }
                    }
                } else {
                    let gone = items(value);
                    list.retain(|item| !gone.contains(item));
                }
                settings.insert(op.key.clone(), list.join(","));
            }
        }
        Ok(())
    }

    /// The list that an APPEND or SUBTRACT starts from: the resource's own, else what it inherits.
    fn list_value(&self, kind: ResourceKind, key: &'static Key, settings: &Settings) -> String {
        if let Some(own) = settings.get(key.name) {
            return own.clone();
        }
        let layers = self.layers();
        match kind {
            ResourceKind::Broker | ResourceKind::BrokerLogger => {
                layers.broker_value(key).unwrap_or_default().into_owned()
            }
            _ => layers.topic_value(key, None).into_owned(),
        }
    }
}

fn no_duplicates<'k>(keys: impl Iterator<Item = &'k str>) -> Outcome<()> {
    match repeated(keys).is_empty() {
        true => Ok(()),
        false => {
            let message = "Error due to duplicate config keys";
            Err(Failure::new(ErrorCode::InvalidRequest, message))
        }
    }
}

fn no_nulls<'k>(keys: impl Iterator<Item = &'k str>) -> Outcome<()> {
    let names: Vec<&str> = keys.collect();
    match names.is_empty() {
        true => Ok(()),
        false => {
            let message = format!("Null value not supported for : {}", names.join(", "));
            Err(Failure::new(ErrorCode::InvalidRequest, message))
        }
    }
}

fn difference(
    resource: &Resource,
    now: &Settings,
    next: &Settings,
    records: &mut Vec<MetadataRecord>,
) {
    let mut push = |key: &str, value: Option<&str>| {
        let record = m::ConfigRecord {
            resource_type: resource.kind.code(),
            resource_name: resource.name.clone().into(),
            name: key.to_string().into(),
            value: value.map(|value| value.to_string().into()),
        };
        records.push(record.into());
    };
    for (key, value) in next {
        if now.get(key) != Some(value) {
            push(key, Some(value));
        }
    }
    for key in now.keys().filter(|key| !next.contains_key(*key)) {
        push(key, None);
    }
}
