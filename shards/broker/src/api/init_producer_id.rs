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
        // Transaction coordinators are not served yet; a client may ask again elsewhere.
        Some(_) => Err(ErrorCode::CoordinatorNotAvailable),
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
