//! The same requests against a broker that runs, to see that the expectations are Kafka's.
//!
//! `COORD_KAFKA=host:port cargo test -p corelane-coord --test 'txn_*' -- --include-ignored`, with a
//! broker that has the topics t (4 partitions) and held (1). The leader of held must be one that
//! does not answer and is taken to be alive: another broker, killed while
//! `broker.session.timeout.ms` is an hour.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use coord::txn::{TxnReply, TxnRequest};
use wire::messages as m;
use wire::{ApiKey, IntoOwned, Message, Reader, Text, frame};

use super::ID;

pub struct Kafka {
    stream: TcpStream,
    /// Every rig has a transactional id of its own.
    id: String,
}

static IDS: AtomicU64 = AtomicU64::new(0);

impl Kafka {
    pub fn new(address: &str) -> Self {
        let stamp = std::time::SystemTime::now();
        let stamp = stamp.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        let id = format!("tx-{stamp}-{}", IDS.fetch_add(1, Ordering::Relaxed));
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut kafka = Kafka { stream, id };
        kafka.warm_up();
        kafka
    }

    /// Waits for the coordinator to be there.
    fn warm_up(&mut self) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let find = m::FindCoordinatorRequest {
                key_type: 1,
                coordinator_keys: vec![self.id.clone().into()].into(),
                ..Default::default()
            };
            let body = self.exchange(ApiKey::FindCoordinator, 4, &find);
            let mut reader = Reader::new(&body);
            frame::decode_response_header(&mut reader, ApiKey::FindCoordinator, 4).unwrap();
            let found = m::FindCoordinatorResponse::decode(&mut reader, 4).unwrap();
            let known = found.coordinators.first().unwrap().error_code == 0;
            // A broker that has just started may have no producer ids at hand.
            let request = m::InitProducerIdRequest { transactional_id: None, ..Default::default() };
            let TxnReply::InitProducerId(reply) = self.ask(TxnRequest::InitProducerId(&request), 5)
            else {
                panic!("not a producer")
            };
            let TxnReply::Describe(state) = self.ask(TxnRequest::Describe(ID), 0) else {
                panic!("not a description")
            };
            let loads = |code| (14..=16).contains(&code);
            if known && !loads(reply.error_code) && !loads(state.error_code) {
                return;
            }
            assert!(Instant::now() < end, "no coordinator");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn exchange<'m>(&mut self, api: ApiKey, version: i16, message: &impl Message<'m>) -> Vec<u8> {
        let mut writer = frame::begin_request(api, version, 1, Some("client")).unwrap();
        message.encode(&mut writer, version).unwrap();
        self.stream.write_all(&frame::finish_request(writer).bytes).unwrap();
        let mut size = [0; 4];
        self.stream.read_exact(&mut size).unwrap();
        let mut body = vec![0; usize::try_from(i32::from_be_bytes(size)).unwrap()];
        self.stream.read_exact(&mut body).unwrap();
        body
    }

    /// What is not the rig's own id is meant as it stands.
    fn name(&self, id: &str) -> Text<'static> {
        if id == ID { self.id.clone().into() } else { String::from(id).into() }
    }

    pub fn ask(&mut self, request: TxnRequest<'_, '_>, version: i16) -> TxnReply {
        macro_rules! exchanged {
            ($api:ident, $message:expr, $response:ident) => {{
                let body = self.exchange(ApiKey::$api, version, &$message);
                let mut reader = Reader::new(&body);
                frame::decode_response_header(&mut reader, ApiKey::$api, version).unwrap();
                m::$response::decode(&mut reader, version).unwrap().into_owned()
            }};
        }
        match request {
            TxnRequest::InitProducerId(request) => {
                let mut message = request.clone().into_owned();
                message.transactional_id = message.transactional_id.map(|id| self.name(&id));
                TxnReply::InitProducerId(exchanged!(
                    InitProducerId,
                    message,
                    InitProducerIdResponse
                ))
            }
            TxnRequest::AddPartitions(transaction) => {
                let mut transaction = transaction.clone().into_owned();
                transaction.transactional_id = self.name(&transaction.transactional_id);
                let message = match version {
                    4.. => m::AddPartitionsToTxnRequest {
                        transactions: vec![transaction].into(),
                        ..Default::default()
                    },
                    _ => m::AddPartitionsToTxnRequest {
                        v3_and_below_transactional_id: transaction.transactional_id,
                        v3_and_below_producer_id: transaction.producer_id,
                        v3_and_below_producer_epoch: transaction.producer_epoch,
                        v3_and_below_topics: transaction.topics,
                        ..Default::default()
                    },
                };
                let reply = exchanged!(AddPartitionsToTxn, message, AddPartitionsToTxnResponse);
                assert_eq!(reply.error_code, 0);
                TxnReply::AddPartitions(match version {
                    4.. => reply.results_by_transaction.first().unwrap(),
                    _ => m::add_partitions_to_txn_response::AddPartitionsToTxnResult {
                        topic_results: reply.results_by_topic_v3_and_below,
                        ..Default::default()
                    },
                })
            }
            TxnRequest::AddOffsets { request, .. } => {
                let mut message = request.clone().into_owned();
                message.transactional_id = self.name(&message.transactional_id);
                TxnReply::AddOffsets(exchanged!(AddOffsetsToTxn, message, AddOffsetsToTxnResponse))
            }
            TxnRequest::EndTxn(request) => {
                let mut message = request.clone().into_owned();
                message.transactional_id = self.name(&message.transactional_id);
                TxnReply::EndTxn(exchanged!(EndTxn, message, EndTxnResponse))
            }
            TxnRequest::Describe(id) => {
                let transactional_ids = vec![self.name(id)].into();
                let message = m::DescribeTransactionsRequest { transactional_ids };
                let reply = exchanged!(DescribeTransactions, message, DescribeTransactionsResponse);
                TxnReply::Describe(reply.transaction_states.first().unwrap())
            }
            TxnRequest::List { request, .. } => {
                let mut message = request.clone().into_owned();
                message.transactional_id_pattern =
                    message.transactional_id_pattern.map(|id| self.name(&id));
                let list = exchanged!(ListTransactions, message, ListTransactionsResponse);
                TxnReply::List { list, goes_on_after: None }
            }
        }
    }
}
