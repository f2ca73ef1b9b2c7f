//! Shard nodes as they registered themselves.

use wire::Uuid;
use wire::messages as m;

use crate::node::NodeId;

/// Where clients reach a node under one listener name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub listener: String,
    pub host: String,
    pub port: u16,
    /// Kafka's security protocol code: 0 plain text, 1 TLS, 2 SASL, 3 SASL over TLS.
    pub protocol: i16,
}

/// One registered shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub id: NodeId,
    /// Offset of the registration's record; a later registration has a later epoch.
    pub epoch: i64,
    /// New at each start of the process.
    pub incarnation: Uuid,
    pub endpoints: Vec<Endpoint>,
    pub rack: Option<String>,
    /// Registered, but not to be given to clients or made leader.
    pub fenced: bool,
}

impl Node {
    /// The endpoint under this listener name.
    pub fn endpoint(&self, listener: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.listener == listener)
    }

    pub(super) fn from_record(record: &m::RegisterBrokerRecord<'_>) -> Self {
        let endpoints = record.end_points.iter().map(|endpoint| Endpoint {
            listener: endpoint.name.to_string(),
            host: endpoint.host.to_string(),
            port: endpoint.port,
            protocol: endpoint.security_protocol,
        });
        Node {
            id: NodeId(record.broker_id),
            epoch: record.broker_epoch,
            incarnation: record.incarnation_id,
            endpoints: endpoints.collect(),
            rack: record.rack.as_ref().map(|rack| rack.to_string()),
            fenced: record.fenced,
        }
    }

    /// The record that registers this node as it is.
    pub(crate) fn to_record(&self) -> m::RegisterBrokerRecord<'static> {
        let endpoints: Vec<_> = self
            .endpoints
            .iter()
            .map(|endpoint| m::register_broker_record::BrokerEndpoint {
                name: endpoint.listener.clone().into(),
                host: endpoint.host.clone().into(),
                port: endpoint.port,
                security_protocol: endpoint.protocol,
            })
            .collect();
        m::RegisterBrokerRecord {
            broker_id: self.id.0,
            incarnation_id: self.incarnation,
            broker_epoch: self.epoch,
            end_points: endpoints.into(),
            rack: self.rack.clone().map(Into::into),
            fenced: self.fenced,
            ..Default::default()
        }
    }
}
