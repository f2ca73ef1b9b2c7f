//! A client for tests that runs on the reactor, so that it works under the simulator too, and the
//! way to start a broker's shards inside the test's own executor.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use broker::{BrokerError, DataDirStart, MESH_CAPACITY, ShardMessage, ShardStart};
use bytes::{Buf, Bytes, BytesMut};
use meta::config::{BrokerConfig, StaticConfig};
use reactor::sync::{OneshotReceiver, oneshot};
use reactor::{Task, TcpStream};
use wire::messages::alter_partition_reassignments_request::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use wire::messages::alter_partition_reassignments_response::AlterPartitionReassignmentsResponse;
use wire::messages::create_topics_request::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use wire::messages::create_topics_response::CreateTopicsResponse;
use wire::messages::delete_topics_request::{DeleteTopicState, DeleteTopicsRequest};
use wire::messages::delete_topics_response::DeleteTopicsResponse;
use wire::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use wire::messages::fetch_response::FetchResponse;
use wire::messages::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
use wire::messages::produce_response::ProduceResponse;
use wire::records::BatchBuilder;
use wire::{ApiKey, Message, Reader, Records, Uuid, frame};

pub const CLUSTER_ID: &str = "AAAAAAAAAAAAAAAAAAAAAQ";
pub const BASE_PORT: u16 = 9092;

/// The addresses of `shards` shards on loopback, from a base port on.
pub fn addresses(shards: u16, base_port: u16) -> Vec<SocketAddr> {
    (0..shards).map(|shard| SocketAddr::from(([127, 0, 0, 1], base_port + shard))).collect()
}

/// Shards of one broker running as tasks of this executor.
pub struct Shards {
    pub tasks: Vec<Task<Result<(), BrokerError>>>,
    pub addresses: Vec<SocketAddr>,
    ready: Option<Arc<std::sync::atomic::AtomicBool>>,
}

/// Starts a broker on the data directory.
pub fn start_shards(shards: u16, base_port: u16, data_dir: &str, settings: &[&str]) -> Shards {
    start_on(shards, base_port, &[data_dir], settings)
}

/// Starts a broker on several data directories.
pub fn start_on(shards: u16, base_port: u16, data_dirs: &[&str], settings: &[&str]) -> Shards {
    let data_dirs: Vec<DataDirStart> = data_dirs
        .iter()
        .enumerate()
        .map(|(number, path)| DataDirStart {
            path: PathBuf::from(path),
            id: Some(directory_id(number)),
            failure: None,
        })
        .collect();
    let mut fixed = StaticConfig::default();
    // Tests run side by side; one that wants metrics says where.
    fixed.set("admin.port", "0").expect("a known key");
    for pair in settings {
        fixed.set_pair(pair).expect("a test sets known keys");
    }
    let config = Arc::new(BrokerConfig::from_static(&fixed).expect("a test's settings are valid"));
    let fixed = Arc::new(fixed);
    let addresses = addresses(shards, base_port);
    let advertised: Vec<(String, u16)> =
        addresses.iter().map(|a| (a.ip().to_string(), a.port())).collect();
    let meshes = reactor::mesh::<ShardMessage>(usize::from(shards), MESH_CAPACITY);
    let is_ready = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut tasks = Vec::new();
    for ((mesh, shard), listen) in meshes.into_iter().zip(0u16..).zip(addresses.iter().copied()) {
        let is_ready = is_ready.clone();
        let start = ShardStart {
            shard,
            shards,
            broker_id: 1,
            cluster_id: CLUSTER_ID.to_owned(),
            listen,
            advertised: advertised.clone(),
            data_dirs: data_dirs.clone(),
            config: config.clone(),
            static_config: fixed.clone(),
            memory_bytes: 256 * 1024 * 1024,
            mesh,
            ready: Box::new(move || is_ready.store(true, std::sync::atomic::Ordering::SeqCst)),
        };
        let dirs: Vec<PathBuf> = start.data_dirs.iter().map(|dir| dir.path.clone()).collect();
        tasks.push(reactor::spawn(async move {
            if shard == 0 {
                mark_dirs(&dirs).await;
            }
            broker::run(start).await
        }));
    }
    Shards { tasks, addresses, ready: Some(is_ready) }
}

/// The directory ids of a test's data directories.
pub fn directory_id(number: usize) -> Uuid {
    Uuid([number as u8 + 1; 16])
}

/// Marks the directories as the process does before the shards start. One that fails stays unmarked.
async fn mark_dirs(dirs: &[PathBuf]) {
    for (number, dir) in dirs.iter().enumerate() {
        let path = dir.join("meta.properties");
        if reactor::fs::exists(&path).await.unwrap_or(true) {
            continue;
        }
        let id = directory_id(number);
        let text = format!("cluster.id={CLUSTER_ID}\ndirectory.id={id}\nnode.id=1\nversion=1\n");
        let _ = reactor::fs::write_atomic(&path, text.into_bytes()).await;
    }
}

impl Shards {
    /// Waits until every shard serves.
    pub async fn ready(&mut self) {
        let Some(flag) = &self.ready else { return };
        while !flag.load(std::sync::atomic::Ordering::SeqCst) {
            for task in &mut self.tasks {
                if task.is_finished() {
                    panic!("a shard ended at start: {:?}", task.await);
                }
            }
            reactor::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}

/// What is left of a connection that the broker or the network ended.
#[derive(Debug)]
pub struct Gone(pub String);

impl<E: std::error::Error> From<E> for Gone {
    fn from(error: E) -> Self {
        Gone(error.to_string())
    }
}

/// One connection that speaks a request at a time.
pub struct Client {
    stream: TcpStream,
    buffer: BytesMut,
    correlation_id: i32,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Result<Self, Gone> {
        let stream = TcpStream::connect(address).await?;
        Ok(Client { stream, buffer: BytesMut::new(), correlation_id: 0 })
    }

    pub async fn send<'a, M: Message<'a>>(
        &mut self,
        api: ApiKey,
        version: i16,
        request: &M,
    ) -> Result<(), Gone> {
        self.correlation_id += 1;
        let mut writer = frame::begin_request(api, version, self.correlation_id, Some("test"))?;
        request.encode(&mut writer, version)?;
        let bytes: Bytes = frame::finish_request(writer).bytes.into();
        Ok(self.stream.write_all(vec![bytes]).await?)
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        Ok(self.stream.write_all(vec![Bytes::copy_from_slice(bytes)]).await?)
    }

    /// The next response frame, without its size.
    pub async fn receive(&mut self) -> Result<Bytes, Gone> {
        loop {
            if self.buffer.len() >= 4 {
                let size = (&self.buffer[..4]).get_i32() as usize;
                if self.buffer.len() >= 4 + size {
                    self.buffer.advance(4);
                    return Ok(self.buffer.split_to(size).freeze());
                }
            }
            self.buffer.reserve(64 * 1024);
            let (read, buffer) = self.stream.read(std::mem::take(&mut self.buffer)).await;
            self.buffer = buffer;
            if read? == 0 {
                return Err(Gone("the broker closed the connection".to_owned()));
            }
        }
    }

    /// Sends a request and returns the decoded response.
    pub async fn call<'a, Q, R>(
        &mut self,
        api: ApiKey,
        version: i16,
        request: &Q,
    ) -> Result<R::Static, Gone>
    where
        Q: Message<'a>,
        R: Response,
    {
        self.send(api, version, request).await?;
        let bytes = self.receive().await?;
        let mut reader = Reader::new(&bytes);
        let correlation_id = frame::decode_response_header(&mut reader, api, version)?;
        assert_eq!(correlation_id, self.correlation_id, "responses come in request order");
        let response = R::decode_owned(&mut reader, version)?;
        assert_eq!(reader.remaining(), 0, "{} {version}: bytes left over", api.name());
        Ok(response)
    }

    pub async fn create_topic(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> Result<i16, Gone> {
        let configs: Vec<CreatableTopicConfig<'_>> = configs
            .iter()
            .map(|(name, value)| CreatableTopicConfig {
                name: (*name).into(),
                value: Some((*value).into()),
            })
            .collect();
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs.into(),
            ..Default::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![topic].into(),
            timeout_ms: 30_000,
            ..Default::default()
        };
        let response: CreateTopicsResponse<'static> =
            self.call::<_, CreateTopics>(ApiKey::CreateTopics, 7, &request).await?;
        Ok(response.topics.first().map_or(-1, |topic| topic.error_code))
    }

    pub async fn delete_topic(&mut self, name: &str) -> Result<i16, Gone> {
        let state = DeleteTopicState { name: Some(name.into()), topic_id: Uuid::ZERO };
        let request = DeleteTopicsRequest {
            topics: vec![state].into(),
            timeout_ms: 30_000,
            ..Default::default()
        };
        let response: DeleteTopicsResponse<'static> =
            self.call::<_, DeleteTopics>(ApiKey::DeleteTopics, 6, &request).await?;
        Ok(response.responses.first().map_or(-1, |topic| topic.error_code))
    }

    /// Produces one batch; returns error code and base offset.
    pub async fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        batch: &[u8],
    ) -> Result<(i16, i64), Gone> {
        let request = ProduceRequest { acks: -1, ..to_produce(topic, partition, batch) };
        let response: ProduceResponse<'static> =
            self.call::<_, Produce>(ApiKey::Produce, 9, &request).await?;
        let topic = response.responses.first().ok_or(Gone("no topic".to_owned()))?;
        let partition = topic.partition_responses.first().ok_or(Gone("no partition".to_owned()))?;
        Ok((partition.error_code, partition.base_offset))
    }

    /// Produces with acks=0. A connection for one partition that the shard does not lead is closed.
    pub async fn send_unacknowledged(
        &mut self,
        topic: &str,
        partition: i32,
        batch: &[u8],
    ) -> Result<(), Gone> {
        self.send(ApiKey::Produce, 9, &to_produce(topic, partition, batch)).await
    }

    /// Asks for other replicas of a partition, or with `None` that this be given up; returns the error
    /// code of the partition.
    pub async fn reassign(
        &mut self,
        topic: &str,
        partition: i32,
        replicas: Option<Vec<i32>>,
    ) -> Result<i16, Gone> {
        let partition = ReassignablePartition {
            partition_index: partition,
            replicas: replicas.map(Into::into),
        };
        let topic = ReassignableTopic { name: topic.into(), partitions: vec![partition].into() };
        let request = AlterPartitionReassignmentsRequest {
            timeout_ms: 30_000,
            allow_replication_factor_change: false,
            topics: vec![topic].into(),
        };
        let response: AlterPartitionReassignmentsResponse<'static> =
            self.call::<_, Reassigned>(ApiKey::AlterPartitionReassignments, 1, &request).await?;
        let topic = response.responses.first().ok_or(Gone("no topic".to_owned()))?;
        let partition = topic.partitions.first().ok_or(Gone("no partition".to_owned()))?;
        Ok(partition.error_code)
    }

    /// Fetches once from one partition; returns error code, high watermark and record bytes.
    pub async fn fetch(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
        max_wait_ms: i32,
    ) -> Result<(i16, i64, Bytes), Gone> {
        let wanted = FetchPartition {
            partition,
            fetch_offset: offset,
            partition_max_bytes: 1024 * 1024,
            ..Default::default()
        };
        let topic = FetchTopic {
            topic: topic.into(),
            topic_id: Uuid::ZERO,
            partitions: vec![wanted].into(),
        };
        let request = FetchRequest {
            max_wait_ms,
            min_bytes: 1,
            max_bytes: 8 * 1024 * 1024,
            session_epoch: -1,
            topics: vec![topic].into(),
            ..Default::default()
        };
        let response: FetchResponse<'static> =
            self.call::<_, Fetch>(ApiKey::Fetch, 12, &request).await?;
        let topic = response.responses.first().ok_or(Gone("no topic".to_owned()))?;
        let partition = topic.partitions.first().ok_or(Gone("no partition".to_owned()))?;
        let records = match partition.records {
            Some(Records::Owned(bytes)) => bytes,
            Some(Records::Borrowed(bytes)) => Bytes::copy_from_slice(bytes),
            Some(Records::Detached(_)) | None => Bytes::new(),
        };
        Ok((partition.error_code, partition.high_watermark, records))
    }
}

/// A response type, decoded from any frame.
pub trait Response {
    type Static;

    fn decode_owned(reader: &mut Reader<'_>, version: i16) -> Result<Self::Static, Gone>;
}

/// Makes a [`Response`] of a message, with `borrows` if it borrows from the frame.
#[macro_export]
macro_rules! response {
    ($marker:ident, $message:ident, borrows) => {
        $crate::response!(@ $marker, $message<'static>, $message<'_>);
    };
    ($marker:ident, $message:ident) => {
        $crate::response!(@ $marker, $message, $message);
    };
    (@ $marker:ident, $kept:ty, $read:ty) => {
        pub struct $marker;

        impl $crate::support::Response for $marker {
            type Static = $kept;

            fn decode_owned(
                reader: &mut wire::Reader<'_>,
                version: i16,
            ) -> Result<Self::Static, $crate::support::Gone> {
                let message = <$read as wire::Message<'_>>::decode(reader, version)?;
                Ok(wire::IntoOwned::into_owned(message))
            }
        }
    };
}

response!(CreateTopics, CreateTopicsResponse, borrows);
response!(DeleteTopics, DeleteTopicsResponse, borrows);
response!(Produce, ProduceResponse, borrows);
response!(Fetch, FetchResponse, borrows);
response!(Reassigned, AlterPartitionReassignmentsResponse, borrows);

fn to_produce<'a>(topic: &'a str, partition: i32, batch: &'a [u8]) -> ProduceRequest<'a> {
    let data = PartitionProduceData { index: partition, records: Some(Records::Borrowed(batch)) };
    let topic = TopicProduceData {
        name: topic.into(),
        partition_data: vec![data].into(),
        ..Default::default()
    };
    ProduceRequest { timeout_ms: 30_000, topic_data: vec![topic].into(), ..Default::default() }
}

/// The same within the transaction of this id.
pub fn to_produce_within<'a>(
    transactional_id: &'a str,
    (topic, partition): (&'a str, i32),
    batch: &'a [u8],
) -> ProduceRequest<'a> {
    let plain = to_produce(topic, partition, batch);
    ProduceRequest { transactional_id: Some(transactional_id.into()), acks: -1, ..plain }
}

/// One record of a transaction.
pub fn batch_within((id, epoch): (i64, i16), sequence: i32, value: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new().producer(id, epoch, sequence).transactional(true);
    builder.append(reactor::wall_clock_ms(), None, Some(value));
    builder.build().expect("a small batch can be built")
}

/// A batch of records with these values, and keys that are their index.
pub fn batch(values: &[&[u8]], now_ms: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (index, value) in values.iter().enumerate() {
        builder.append(now_ms, Some(index.to_string().as_bytes()), Some(value));
    }
    builder.build().expect("a small batch can be built")
}

/// The values of every record in some fetched bytes, with their offsets.
pub fn values(bytes: &[u8]) -> Vec<(i64, Vec<u8>)> {
    let mut values = Vec::new();
    for batch in wire::records::batches(bytes) {
        let batch = batch.expect("served batches are whole");
        batch.verify_crc().expect("served batches are intact");
        let mut records = batch.records(usize::MAX).expect("served batches can be read");
        while let Some(record) = records.next_record().expect("served records are whole") {
            values.push((record.offset, record.value.unwrap_or_default().to_vec()));
        }
    }
    values
}

/// A signal from one task to another.
pub fn signal() -> (reactor::sync::OneshotSender<()>, OneshotReceiver<()>) {
    oneshot()
}
