//! A broker that is none: one node that says yes to everything, keeps nothing, and stalls once
//! where it is told to. A thread a connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use wire::frame::{self, SIZE_BYTES};
use wire::messages as m;
use wire::messages::api_versions_response::ApiVersion;
use wire::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use wire::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use wire::{ApiKey, Message, Reader, Uuid};

#[derive(Clone)]
pub struct Stub {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    produces: AtomicU64,
    /// Since the first produce, and how long; once.
    stall: Mutex<Option<(Duration, Duration)>>,
    first: Mutex<Option<Instant>>,
}

impl Stub {
    pub fn start(stall: Option<(Duration, Duration)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (produces, first) = (AtomicU64::new(0), Mutex::new(None));
        let shared = Arc::new(Shared { produces, stall: Mutex::new(stall), first });
        let stub = Stub { address, shared };
        let serving = stub.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stub = serving.clone();
                // A client that goes away ends its connection.
                thread::spawn(move || stub.serve(stream.unwrap()));
            }
        });
        stub
    }

    /// Produce requests so far.
    pub fn produces(&self) -> u64 {
        self.shared.produces.load(Ordering::Relaxed)
    }

    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        loop {
            let mut size = [0; SIZE_BYTES];
            stream.read_exact(&mut size).ok()?;
            let mut bytes = vec![0; usize::try_from(i32::from_be_bytes(size)).ok()?];
            stream.read_exact(&mut bytes).ok()?;
            stream.write_all(&self.answer(&bytes)).ok()?;
        }
    }

    fn answer(&self, bytes: &[u8]) -> Vec<u8> {
        let mut reader = Reader::new(bytes);
        let header = frame::decode_request_header(&mut reader).unwrap();
        let api = ApiKey::from_code(header.api_key).unwrap();
        let (version, id) = (header.api_version, header.correlation_id);
        match api {
            ApiKey::ApiVersions => encode(api, version, id, &self.versions()),
            ApiKey::Metadata => {
                let request = m::MetadataRequest::decode(&mut reader, version).unwrap();
                encode(api, version, id, &self.metadata(&request))
            }
            ApiKey::CreateTopics => encode(api, version, id, &m::CreateTopicsResponse::default()),
            ApiKey::DeleteTopics => encode(api, version, id, &m::DeleteTopicsResponse::default()),
            ApiKey::DescribeConfigs => {
                encode(api, version, id, &m::DescribeConfigsResponse::default())
            }
            ApiKey::Fetch => encode(api, version, id, &m::FetchResponse::default()),
            ApiKey::Produce => {
                let request = m::ProduceRequest::decode(&mut reader, version).unwrap();
                self.stall();
                encode(api, version, id, &accept(&request))
            }
            other => panic!("the stub knows no {other:?}"),
        }
    }

    fn versions(&self) -> m::ApiVersionsResponse<'static> {
        let one = |key: ApiKey, max_version| ApiVersion {
            api_key: key.code(),
            min_version: 0,
            max_version,
        };
        let api_keys = vec![one(ApiKey::Produce, 13), one(ApiKey::Fetch, 17)];
        m::ApiVersionsResponse { api_keys: api_keys.into(), ..Default::default() }
    }

    /// Every topic that is asked for has four partitions.
    fn metadata(&self, request: &m::MetadataRequest<'_>) -> m::MetadataResponse<'static> {
        let broker = MetadataResponseBroker {
            node_id: 1,
            host: self.address.ip().to_string().into(),
            port: self.address.port().into(),
            ..Default::default()
        };
        let partition = |partition_index| MetadataResponsePartition {
            partition_index,
            leader_id: 1,
            ..Default::default()
        };
        let asked = request.topics.iter().flat_map(|topics| topics.iter());
        let topics = asked.map(|topic| MetadataResponseTopic {
            name: topic.name.as_ref().map(|name| name.to_string().into()),
            topic_id: Uuid([1; 16]),
            partitions: (0..4).map(partition).collect(),
            ..Default::default()
        });
        m::MetadataResponse {
            brokers: vec![broker].into(),
            topics: topics.collect(),
            ..Default::default()
        }
    }

    fn stall(&self) {
        self.shared.produces.fetch_add(1, Ordering::Relaxed);
        let since = self.shared.first.lock().unwrap().get_or_insert_with(Instant::now).elapsed();
        // Held while it stalls: no other connection gets an answer meanwhile either.
        let mut stall = self.shared.stall.lock().unwrap();
        if let Some((after, length)) = *stall
            && since >= after
        {
            thread::sleep(length);
            *stall = None;
        }
    }
}

fn accept(request: &m::ProduceRequest<'_>) -> m::ProduceResponse<'static> {
    let topics = request.topic_data.iter().map(|topic| TopicProduceResponse {
        topic_id: topic.topic_id,
        partition_responses: topic
            .partition_data
            .iter()
            .map(|data| PartitionProduceResponse { index: data.index, ..Default::default() })
            .collect(),
        ..Default::default()
    });
    m::ProduceResponse { responses: topics.collect(), ..Default::default() }
}

fn encode<'a>(api: ApiKey, version: i16, id: i32, answer: &impl Message<'a>) -> Vec<u8> {
    let mut writer = frame::begin_response(api, version, id);
    answer.encode(&mut writer, version).unwrap();
    frame::finish_response(writer).bytes.to_vec()
}
