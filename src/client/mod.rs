//! A small Kafka client for the command line: any cluster, one thread, no background work.
//!
//! Owns the way from bootstrap addresses to the right broker: metadata, one connection a node,
//! retries with bounded back-off until a deadline. `connection.rs` speaks to one broker;
//! `admin.rs`, `producer.rs` and `consumer.rs` say what. Never: keeps a borrow over an await, holds
//! more than one request in flight on a connection.

pub mod admin;
pub mod connection;
pub mod consumer;
pub mod decode;
pub mod error;
pub mod groups;
pub mod membership;
pub mod metadata;
pub mod offsets;
pub mod producer;
pub mod transactions;

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::time::Duration;

use wire::messages::{MetadataRequest, MetadataResponse, metadata_request::MetadataRequestTopic};
use wire::{ErrorCode, Message};

use connection::{Connection, Reply};
use error::ClientError;
use metadata::{Metadata, TopicMetadata};

use crate::config::endpoint::Endpoint;

/// From version 4 on asking by name need not create.
const METADATA_VERSIONS: RangeInclusive<i16> = 4..=12;
/// How long a topic that is not there is waited for.
const TOPIC_WAIT: Duration = Duration::from_secs(3);
/// How long one request may take, unless less time is left.
const REQUEST_WAIT: Duration = Duration::from_secs(30);
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_MOST: Duration = Duration::from_secs(1);

/// The cluster as this command sees it.
pub struct Cluster {
    bootstrap: Vec<Endpoint>,
    /// How long an operation is tried again.
    patience: Duration,
    nodes: BTreeMap<i32, Endpoint>,
    controller: Option<i32>,
    connections: HashMap<i32, Connection>,
    /// To whichever bootstrap broker answered, for what any broker can answer.
    any: Option<Connection>,
}

impl Cluster {
    pub fn new(bootstrap: Vec<Endpoint>, patience: Duration) -> Self {
        Cluster {
            bootstrap,
            patience,
            nodes: BTreeMap::new(),
            controller: None,
            connections: HashMap::new(),
            any: None,
        }
    }

    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Tries `work` until it succeeds, fails for good, or the patience ends; then the last error.
    pub async fn retrying<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut Self) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut backoff = Backoff::new(self.patience);
        loop {
            let error = match work(self).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            if !error.retriable() || !backoff.wait().await {
                return Err(error);
            }
            tracing::debug!("trying again: {error}");
        }
    }

    /// What the cluster says of `topics`, of all if `None`. Nothing is created by asking.
    pub async fn metadata(&mut self, topics: Option<&[&str]>) -> Result<Metadata, ClientError> {
        self.ask_metadata(topics, false).await
    }

    async fn ask_metadata(
        &mut self,
        topics: Option<&[&str]>,
        create: bool,
    ) -> Result<Metadata, ClientError> {
        let names = topics.map(|names| {
            let topic = |name: &&str| MetadataRequestTopic {
                name: Some((*name).to_owned().into()),
                ..MetadataRequestTopic::default()
            };
            names.iter().map(topic).collect::<Vec<_>>().into()
        });
        let request = MetadataRequest {
            topics: names,
            allow_auto_topic_creation: create,
            ..MetadataRequest::default()
        };
        let ask = async |connection: &mut Connection, wait| {
            connection.call(&request, METADATA_VERSIONS, wait).await
        };
        let reply = self.ask_any(ask).await?;
        let metadata = Metadata::from_response(&reply.decode::<MetadataResponse<'_>>()?);
        self.nodes = metadata.nodes.clone();
        self.controller = metadata.controller;
        Ok(metadata)
    }

    /// One topic, or the error the cluster has for it.
    pub async fn topic(&mut self, name: &str) -> Result<TopicMetadata, ClientError> {
        let metadata = self.metadata(Some(&[name])).await?;
        pick(metadata, name)
    }

    /// One topic, waited for a little if it is not there, as it may have been made a moment ago;
    /// with `create` the cluster makes it if it makes topics by itself.
    pub async fn wait_for_topic(
        &mut self,
        name: &str,
        create: bool,
    ) -> Result<TopicMetadata, ClientError> {
        let mut appear = Backoff::new(self.patience.min(TOPIC_WAIT));
        let mut patience = Backoff::new(self.patience);
        loop {
            let answer = self.ask_metadata(Some(&[name]), create).await;
            let error = match answer.and_then(|metadata| pick(metadata, name)) {
                Ok(topic) => return Ok(topic),
                Err(error) => error,
            };
            let unknown = error.code() == Some(ErrorCode::UnknownTopicOrPartition);
            let backoff = if unknown { &mut appear } else { &mut patience };
            if !error.retriable() || !backoff.wait().await {
                return Err(error);
            }
        }
    }

    /// Whether a node's address is known.
    pub fn knows(&self, node: i32) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Sends what any broker can answer.
    pub async fn call_any<'q, Q: Message<'q>>(
        &mut self,
        request: &Q,
        ours: RangeInclusive<i16>,
    ) -> Result<Reply, ClientError> {
        self.ask_any(async |connection: &mut Connection, wait| {
            connection.call(request, ours.clone(), wait).await
        })
        .await
    }

    /// Sends to one node; a node that is not known any more is an error to retry.
    pub async fn call_node<'q, Q: Message<'q>>(
        &mut self,
        node: i32,
        request: &Q,
        ours: RangeInclusive<i16>,
    ) -> Result<Reply, ClientError> {
        let mut connection = self.take(node).await?;
        let reply = connection.call(request, ours, self.request_wait()).await?;
        self.connections.insert(node, connection);
        Ok(reply)
    }

    /// Sends to the controller, as topics are its business. Kafka names any broker there, which
    /// forwards.
    pub async fn call_controller<'q, Q: Message<'q>>(
        &mut self,
        request: &Q,
        ours: RangeInclusive<i16>,
    ) -> Result<Reply, ClientError> {
        if self.controller.is_none() {
            self.metadata(Some(&[])).await?;
        }
        let node = self.controller.ok_or_else(|| {
            let code = ErrorCode::NotController.code();
            ClientError::broker("no broker says who is controller", code, None)
        })?;
        let result = self.call_node(node, request, ours).await;
        if result.is_err() {
            self.controller = None;
        }
        result
    }

    /// The connection to `node`, opened if need be; to be given back after a success.
    pub async fn take(&mut self, node: i32) -> Result<Connection, ClientError> {
        if let Some(connection) = self.connections.remove(&node) {
            return Ok(connection);
        }
        let endpoint = self.nodes.get(&node).ok_or_else(|| {
            let code = ErrorCode::LeaderNotAvailable.code();
            ClientError::broker(format!("node {node} is not in the cluster"), code, None)
        })?;
        Connection::open(endpoint, self.request_wait()).await
    }

    pub fn give_back(&mut self, node: i32, connection: Connection) {
        self.connections.insert(node, connection);
    }

    pub fn request_wait(&self) -> Duration {
        self.patience.min(REQUEST_WAIT)
    }

    /// Asks the broker that answered last, else each known and each bootstrap broker in turn.
    async fn ask_any(
        &mut self,
        mut ask: impl AsyncFnMut(&mut Connection, Duration) -> Result<Reply, ClientError>,
    ) -> Result<Reply, ClientError> {
        let wait = self.request_wait();
        if let Some(mut connection) = self.any.take() {
            match ask(&mut connection, wait).await {
                Ok(reply) => {
                    self.any = Some(connection);
                    return Ok(reply);
                }
                Err(error) if !error.retriable() => return Err(error),
                Err(error) => tracing::debug!("{}: {error}", connection.peer()),
            }
        }
        let mut failed: Option<ClientError> = None;
        let known: Vec<Endpoint> = self.nodes.values().cloned().collect();
        for endpoint in self.bootstrap.iter().chain(&known) {
            let answer = match Connection::open(endpoint, wait).await {
                Ok(mut connection) => {
                    let answer = ask(&mut connection, wait).await;
                    answer.map(|reply| (connection, reply))
                }
                Err(error) => Err(error),
            };
            match answer {
                Ok((connection, reply)) => {
                    self.any = Some(connection);
                    return Ok(reply);
                }
                Err(error) if !error.retriable() => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let tried: Vec<String> = self.bootstrap.iter().map(Endpoint::to_string).collect();
        let reason = match failed {
            Some(ClientError::Connection { reason, .. }) => reason,
            Some(other) => other.to_string(),
            None => "no broker was named".to_owned(),
        };
        Err(ClientError::NoBroker { tried: tried.join(", "), reason })
    }
}

fn pick(metadata: Metadata, name: &str) -> Result<TopicMetadata, ClientError> {
    let what = format!("topic {name}");
    let topic = metadata.topics.into_iter().find(|topic| topic.name == name);
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    let topic = topic.ok_or_else(|| ClientError::broker(what.clone(), unknown, None))?;
    ClientError::check(what, topic.error_code, None)?;
    Ok(topic)
}

/// Waits between tries: doubling from 50 ms to 1 s, with jitter, until a deadline.
pub struct Backoff {
    next: Duration,
    deadline: reactor::Instant,
}

impl Backoff {
    pub fn new(patience: Duration) -> Self {
        Backoff { next: BACKOFF_FIRST, deadline: reactor::now() + patience }
    }

    /// Sleeps and says true, or false if the deadline comes first.
    pub async fn wait(&mut self) -> bool {
        // Between half and the whole, so that many clients do not come back together.
        let jitter = reactor::random_u64() % 512;
        let pause = self.next / 2 + (self.next / 1024) * jitter as u32;
        let wakes = reactor::now() + pause;
        if wakes >= self.deadline {
            return false;
        }
        reactor::sleep_until(wakes).await;
        self.next = (self.next * 2).min(BACKOFF_MOST);
        true
    }
}
