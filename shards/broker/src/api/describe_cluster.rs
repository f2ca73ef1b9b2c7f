//! DescribeCluster (60): the shard nodes of the cluster, as brokers.

use wire::ErrorCode;
use wire::messages::describe_cluster_request::DescribeClusterRequest;
use wire::messages::describe_cluster_response::{DescribeClusterBroker, DescribeClusterResponse};

use super::{Request, owned};
use crate::reply::Handled;

const ENDPOINT_BROKERS: i8 = 1;
const ENDPOINT_CONTROLLERS: i8 = 2;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: DescribeClusterRequest = request.body()?;
    let refused = match body.endpoint_type {
        ENDPOINT_BROKERS => None,
        ENDPOINT_CONTROLLERS => Some((
            ErrorCode::MismatchedEndpointType,
            "this listener is for brokers, not for controllers",
        )),
        _ => Some((ErrorCode::UnsupportedEndpointType, "unknown endpoint type")),
    };
    if let Some((error, message)) = refused {
        return request.reply(&DescribeClusterResponse {
            error_code: error.code(),
            error_message: Some(message.into()),
            endpoint_type: ENDPOINT_BROKERS,
            ..Default::default()
        });
    }
    let shard = &request.shard;
    let brokers: Vec<DescribeClusterBroker<'_>> = shard
        .endpoints()
        .into_iter()
        .map(|node| DescribeClusterBroker {
            broker_id: node.node_id,
            host: node.host.to_string().into(),
            port: node.port.into(),
            rack: node.rack.map(|rack| rack.to_string().into()),
            is_fenced: false,
        })
        .collect();
    request.reply(&DescribeClusterResponse {
        cluster_id: owned(shard.cluster_id()),
        controller_id: shard.controller_node_id(),
        brokers: brokers.into(),
        ..Default::default()
    })
}
