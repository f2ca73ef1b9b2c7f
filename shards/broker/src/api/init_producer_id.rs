//! InitProducerId (22) without a transactional id: a producer id that no other producer ever gets.

use wire::ErrorCode;
use wire::messages::init_producer_id_request::InitProducerIdRequest;
use wire::messages::init_producer_id_response::InitProducerIdResponse;

use super::Request;
use crate::reply::Handled;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: InitProducerIdRequest<'_> = request.body()?;
    let result = match body.transactional_id.as_deref() {
        Some("") => Err(ErrorCode::InvalidRequest),
        // There is no transaction coordinator: an error that no client retries says so at once.
        Some(_) => Err(ErrorCode::UnsupportedVersion),
        None => request.shard.next_producer_id().await,
    };
    request.reply(&match result {
        Ok(producer_id) => {
            InitProducerIdResponse { producer_id, producer_epoch: 0, ..Default::default() }
        }
        Err(error) => InitProducerIdResponse {
            error_code: error.code(),
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        },
    })
}
