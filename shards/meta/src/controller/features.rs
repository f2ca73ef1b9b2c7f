//! Raising and lowering feature levels (UpdateFeatures). All of a request's updates take effect, or
//! none.

use wire::ErrorCode;

use super::cluster::{GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION};
use super::{Controller, Decision, Failure, Outcome};

/// One feature's new level, as a client asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureUpdate {
    pub feature: String,
    /// 0 takes the feature away.
    pub level: i16,
    /// 1 raises, 2 lowers where that loses nothing, 3 lowers whatever it loses.
    pub upgrade_type: i8,
}

const UPGRADE: i8 = 1;
const SAFE_DOWNGRADE: i8 = 2;
const UNSAFE_DOWNGRADE: i8 = 3;

impl Controller<'_> {
    /// Sets feature levels. The first update that is refused refuses all.
    pub fn update_features(
        &self,
        updates: &[FeatureUpdate],
        validate_only: bool,
    ) -> Decision<Outcome<()>> {
        let checked = updates.iter().try_for_each(|update| self.check_feature(update));
        let mut decision = Decision { records: Vec::new(), outcome: checked };
        if decision.outcome.is_ok() && !validate_only {
            let levels: Vec<(&str, i16)> =
                updates.iter().map(|update| (update.feature.as_str(), update.level)).collect();
            decision.records = self.set_features(&levels).records;
        }
        decision
    }

    fn check_feature(&self, update: &FeatureUpdate) -> Outcome<()> {
        let (feature, level) = (update.feature.as_str(), update.level);
        let refuse = |reason: String| {
            let message = format!("Invalid update version {level} for feature {feature}. {reason}");
            Err(Failure::new(ErrorCode::InvalidUpdateVersion, message))
        };
        if !(UPGRADE..=UNSAFE_DOWNGRADE).contains(&update.upgrade_type) {
            return refuse("The controller does not support the given upgrade type.".into());
        }
        if level < 0 {
            return refuse("A feature version cannot be less than 0.".into());
        }
        let (least, most) = match feature {
            _ if feature == GROUP_VERSION.0 => (0, GROUP_VERSION.1),
            _ if feature == TRANSACTION_VERSION.0 => (0, TRANSACTION_VERSION.1),
            // Records are written as of this level, whatever is finalised.
            _ if feature == METADATA_VERSION.0 => (METADATA_VERSION.1, METADATA_VERSION.1),
            _ => return refuse("The controller does not support this feature.".into()),
        };
        if !(least..=most).contains(&level) {
            return refuse(format!("The controller only supports versions {least}-{most}."));
        }
        let now = self.image.features().get(feature).copied().unwrap_or(0);
        let lowers = matches!(update.upgrade_type, SAFE_DOWNGRADE | UNSAFE_DOWNGRADE);
        if level < now && !lowers {
            return refuse(
                "Can't downgrade the version of this feature without setting the upgrade type to \
                 either safe or unsafe downgrade."
                    .into(),
            );
        }
        if level > now && lowers {
            return refuse("Can't downgrade to a newer version.".into());
        }
        Ok(())
    }
}
