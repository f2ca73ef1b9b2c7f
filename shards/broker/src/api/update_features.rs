//! UpdateFeatures (57): raises and lowers finalised feature levels, all of a request or none.

use meta::Failure;
use meta::controller::FeatureUpdate;
use wire::ErrorCode;
use wire::messages::update_features_request::UpdateFeaturesRequest;
use wire::messages::update_features_response::{UpdatableFeatureResult, UpdateFeaturesResponse};

use super::{DESCRIBED_ITEMS_MAX, Request, check_items};
use crate::control::ControlRequest;
use crate::reply::Handled;

/// Before this version each feature has a result of its own.
const ONE_RESULT_VERSION: i16 = 2;
/// From this version on the kind of change is a code; before, lowering is a switch.
const UPGRADE_TYPE_VERSION: i16 = 1;
const UPGRADE: i8 = 1;
const UNSAFE_DOWNGRADE: i8 = 3;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: UpdateFeaturesRequest<'_> = request.body()?;
    check_items(body.feature_updates.len(), DESCRIBED_ITEMS_MAX)?;
    let updates: Vec<FeatureUpdate> = body
        .feature_updates
        .iter()
        .map(|update| FeatureUpdate {
            feature: update.feature.into_owned(),
            level: update.max_version_level,
            upgrade_type: match request.version >= UPGRADE_TYPE_VERSION {
                true => update.upgrade_type,
                false if update.allow_downgrade => UNSAFE_DOWNGRADE,
                false => UPGRADE,
            },
        })
        .collect();
    let validate_only = body.validate_only;
    drop(body);
    let names: Vec<String> = updates.iter().map(|update| update.feature.clone()).collect();
    let control = ControlRequest::UpdateFeatures { updates, validate_only };
    let (error_code, error_message) = match request.shard.control(control).await.features_updated()
    {
        Ok(()) => (ErrorCode::None.code(), None),
        Err(Failure { code, message }) => (code.code(), Some(message)),
    };
    let of_each = match request.version < ONE_RESULT_VERSION && error_message.is_none() {
        true => names,
        false => Vec::new(),
    };
    let results = of_each.into_iter().map(|name| UpdatableFeatureResult {
        feature: name.into(),
        error_code,
        error_message: None,
    });
    let results = results.collect();
    let error_message = error_message.map(Into::into);
    request.reply(&UpdateFeaturesResponse {
        error_code,
        error_message,
        results,
        ..Default::default()
    })
}
