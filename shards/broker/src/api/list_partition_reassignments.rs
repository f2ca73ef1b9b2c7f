//! ListPartitionReassignments (46): the moves under way. A single broker has nowhere to move a
//! partition to, so the list is empty; `kafka-topics --describe` asks for it all the same.

use wire::messages::list_partition_reassignments_request::ListPartitionReassignmentsRequest;
use wire::messages::list_partition_reassignments_response::ListPartitionReassignmentsResponse;

use super::Request;
use crate::reply::Handled;

pub(crate) async fn handle(request: Request) -> Handled {
    let _: ListPartitionReassignmentsRequest<'_> = request.body()?;
    request.reply(&ListPartitionReassignmentsResponse::default())
}
