//! A blocking client that says no more than the test needs, and says it byte by byte itself: what
//! was sent and what was acknowledged must not be a library's opinion.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use wire::messages::create_topics_request::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use wire::messages::create_topics_response::CreateTopicsResponse;
use wire::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use wire::messages::fetch_response::FetchResponse;
use wire::messages::init_producer_id_request::InitProducerIdRequest;
use wire::messages::init_producer_id_response::InitProducerIdResponse;
use wire::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use wire::messages::metadata_response::MetadataResponse;
use wire::messages::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
use wire::messages::produce_response::ProduceResponse;
use wire::{ApiKey, Message, Reader, Records, frame};

const PATIENCE: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The broker is gone, or does not answer.
#[derive(Debug)]
pub struct Gone(#[allow(dead_code, reason = "a failing test prints it")] String);

impl<E: std::error::Error> From<E> for Gone {
    fn from(error: E) -> Self {
        Gone(error.to_string())
    }
}

pub struct Client {
    stream: TcpStream,
    correlation_id: i32,
}

/// What one fetch brought.
pub struct Fetched {
    pub error: i16,
    pub high_watermark: i64,
    pub log_start: i64,
    pub bytes: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Result<Self, Gone> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Client { stream, correlation_id: 0 })
    }

    /// The body of the answer.
    fn call<'q, Q: Message<'q>>(
        &mut self,
        api: ApiKey,
        version: i16,
        request: &Q,
    ) -> Result<Vec<u8>, Gone> {
        self.correlation_id += 1;
        let id = self.correlation_id;
        let mut writer = frame::begin_request(api, version, id, Some("kills"))?;
        request.encode(&mut writer, version)?;
        self.stream.write_all(&frame::finish_request(writer).bytes)?;
        let mut size = [0; 4];
        self.stream.read_exact(&mut size)?;
        let size = usize::try_from(i32::from_be_bytes(size))?;
        assert!(size <= ANSWER_BYTES_MAX, "an answer of {size} bytes");
        let mut bytes = vec![0; size];
        self.stream.read_exact(&mut bytes)?;
        let mut reader = Reader::new(&bytes);
        let answered = frame::decode_response_header(&mut reader, api, version)?;
        assert_eq!(answered, id, "answers come in the order of the requests");
        Ok(reader.rest().to_vec())
    }

    pub fn create_topic(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> Result<i16, Gone> {
        let config = |(name, value): &(&str, &str)| CreatableTopicConfig {
            name: (*name).to_owned().into(),
            value: Some((*value).to_owned().into()),
        };
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs.iter().map(config).collect::<Vec<_>>().into(),
            ..Default::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![topic].into(),
            timeout_ms: 30_000,
            ..Default::default()
        };
        let body = self.call(ApiKey::CreateTopics, 7, &request)?;
        let answer = CreateTopicsResponse::decode(&mut Reader::new(&body), 7)?;
        Ok(answer.topics.first().map_or(-1, |topic| topic.error_code))
    }

    /// The shard that leads each partition, by partition.
    pub fn leaders(&mut self, topic: &str) -> Result<Vec<usize>, Gone> {
        let wanted = MetadataRequestTopic { name: Some(topic.into()), ..Default::default() };
        let request = MetadataRequest { topics: Some(vec![wanted].into()), ..Default::default() };
        let body = self.call(ApiKey::Metadata, 12, &request)?;
        let answer = MetadataResponse::decode(&mut Reader::new(&body), 12)?;
        let topic = answer.topics.first().ok_or_else(|| Gone("no topic".to_owned()))?;
        let mut leaders: Vec<(i32, i32)> =
            topic.partitions.iter().map(|p| (p.partition_index, p.leader_id)).collect();
        leaders.sort_unstable();
        Ok(leaders.into_iter().map(|(_, leader)| (leader % 1000) as usize).collect())
    }

    pub fn producer_id(&mut self) -> Result<i64, Gone> {
        let request = InitProducerIdRequest { transactional_id: None, ..Default::default() };
        let body = self.call(ApiKey::InitProducerId, 4, &request)?;
        let answer = InitProducerIdResponse::decode(&mut Reader::new(&body), 4)?;
        assert_eq!(answer.error_code, 0);
        Ok(answer.producer_id)
    }

    /// Error code and base offset.
    pub fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        batch: &[u8],
    ) -> Result<(i16, i64), Gone> {
        let data =
            PartitionProduceData { index: partition, records: Some(Records::Borrowed(batch)) };
        let topic = TopicProduceData {
            name: topic.into(),
            partition_data: vec![data].into(),
            ..Default::default()
        };
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 30_000,
            topic_data: vec![topic].into(),
            ..Default::default()
        };
        let body = self.call(ApiKey::Produce, 9, &request)?;
        let answer = ProduceResponse::decode(&mut Reader::new(&body), 9)?;
        let topic = answer.responses.first().ok_or_else(|| Gone("no topic".to_owned()))?;
        let first = topic.partition_responses.first();
        let partition = first.ok_or_else(|| Gone("no partition".to_owned()))?;
        Ok((partition.error_code, partition.base_offset))
    }

    pub fn fetch(&mut self, topic: &str, partition: i32, offset: i64) -> Result<Fetched, Gone> {
        let wanted = FetchPartition {
            partition,
            fetch_offset: offset,
            partition_max_bytes: 4 << 20,
            ..Default::default()
        };
        let topic = FetchTopic {
            topic: topic.into(),
            partitions: vec![wanted].into(),
            ..Default::default()
        };
        let request = FetchRequest {
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: 8 << 20,
            session_epoch: -1,
            topics: vec![topic].into(),
            ..Default::default()
        };
        let body = self.call(ApiKey::Fetch, 12, &request)?;
        let answer = FetchResponse::decode(&mut Reader::new(&body), 12)?;
        let topic = answer.responses.first().ok_or_else(|| Gone("no topic".to_owned()))?;
        let partition = topic.partitions.first().ok_or_else(|| Gone("no partition".to_owned()))?;
        let bytes = match &partition.records {
            Some(Records::Borrowed(bytes)) => bytes.to_vec(),
            Some(Records::Owned(bytes)) => bytes.to_vec(),
            Some(Records::Detached(_)) | None => Vec::new(),
        };
        Ok(Fetched {
            error: partition.error_code,
            high_watermark: partition.high_watermark,
            log_start: partition.log_start_offset,
            bytes,
        })
    }
}
