//! One entry of the registry: what a key is called, holds, means and allows.
//! Pure data and pure checks. Messages that clients see follow Kafka's wording, since tools show
//! them.

use super::error::ConfigError;
use super::value;

/// What a value is. Codes are those of DescribeConfigs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Bool,
    String,
    Int,
    Short,
    Long,
    Double,
    List,
    Class,
    Password,
}

impl Kind {
    /// Type code in a DescribeConfigs answer.
    pub fn code(self) -> i8 {
        match self {
            Kind::Bool => 1,
            Kind::String => 2,
            Kind::Int => 3,
            Kind::Short => 4,
            Kind::Long => 5,
            Kind::Double => 6,
            Kind::List => 7,
            Kind::Class => 8,
            Kind::Password => 9,
        }
    }

    /// Kafka's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bool => "BOOLEAN",
            Kind::String => "STRING",
            Kind::Int => "INT",
            Kind::Short => "SHORT",
            Kind::Long => "LONG",
            Kind::Double => "DOUBLE",
            Kind::List => "LIST",
            Kind::Class => "CLASS",
            Kind::Password => "PASSWORD",
        }
    }
}

/// Which values a key allows beyond those of its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Check {
    Any,
    AtLeast(i64),
    Between(i64, i64),
    /// Between the first two, or the third.
    BetweenOr(i64, i64, i64),
    RealBetween(f64, f64),
    OneOf(&'static [&'static str]),
    OneOfAnyCase(&'static [&'static str]),
    EachOf(&'static [&'static str]),
    /// `*` or a list of `partition:broker`.
    ThrottledReplicas,
    /// `latest`, `earliest` or `by_duration:` and an ISO 8601 duration.
    OffsetReset,
}

/// Which resource a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Topic,
    Broker,
    Group,
    ClientMetrics,
}

impl Scope {
    /// The scope's name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Topic => "topic",
            Scope::Broker => "broker",
            Scope::Group => "group",
            Scope::ClientMetrics => "client metrics",
        }
    }
}

/// Whether a broker key may change while the broker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpdateMode {
    ReadOnly,
    PerBroker,
    ClusterWide,
}

impl UpdateMode {
    /// Kafka's name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            UpdateMode::ReadOnly => "read-only",
            UpdateMode::PerBroker => "per-broker",
            UpdateMode::ClusterWide => "cluster-wide",
        }
    }
}

/// Whether Corelane acts on a key or only knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    Honoured,
    /// Checked, stored and described, so that tools and old files work; changes nothing.
    AcceptedOnly,
}

/// Keys that the documentation shows together.
#[derive(Debug)]
pub struct Section {
    pub title: &'static str,
    pub keys: &'static [Key],
}

/// One key of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    pub scope: Scope,
    pub kind: Kind,
    /// `None`: not set, shown as null.
    pub default: Option<&'static str>,
    pub check: Check,
    pub doc: &'static str,
    /// Broker keys that give the value when the key itself is not set, nearest first. A broker key
    /// with synonyms names itself first.
    pub synonyms: &'static [&'static str],
    pub update: UpdateMode,
    pub sensitive: bool,
    pub effect: Effect,
    /// Accepted, but left out of DescribeConfigs and the documentation.
    pub hidden: bool,
}

impl Key {
    /// Whether this text is a value of this key. The error says what is wrong in Kafka's words.
    pub fn validate(&self, text: &str) -> Result<(), ConfigError> {
        value::check(self, text)
    }

    /// The unit of the value, taken from the key's name; empty for counts and names.
    pub fn unit(&self) -> &'static str {
        let numeric = matches!(self.kind, Kind::Int | Kind::Long | Kind::Short | Kind::Double);
        if !numeric {
            return "";
        }
        let ends = |endings: &[&str]| endings.iter().any(|end| self.name.ends_with(end));
        if self.name.ends_with("bytes.per.second") || self.name.ends_with("throttled.rate") {
            return "bytes/s";
        }
        if ends(&[".ms", ".relogin"]) {
            return "ms";
        }
        if ends(&[".seconds", ".secs"]) {
            return "s";
        }
        if self.name.ends_with(".minutes") {
            return "min";
        }
        if self.name.ends_with(".hours") {
            return "h";
        }
        if ends(&[".bytes", "buffer.size", "receive.size", "between.snapshots"]) {
            return "bytes";
        }
        ""
    }
}

const fn key(name: &'static str, kind: Kind, scope: Scope, update: UpdateMode) -> Key {
    Key {
        name,
        scope,
        kind,
        default: None,
        check: Check::Any,
        doc: "",
        synonyms: &[],
        update,
        sensitive: false,
        effect: Effect::AcceptedOnly,
        hidden: false,
    }
}

pub(super) const fn topic(name: &'static str, kind: Kind) -> Key {
    key(name, kind, Scope::Topic, UpdateMode::ClusterWide)
}

pub(super) const fn group(name: &'static str, kind: Kind) -> Key {
    key(name, kind, Scope::Group, UpdateMode::ClusterWide)
}

pub(super) const fn client_metrics(name: &'static str, kind: Kind) -> Key {
    key(name, kind, Scope::ClientMetrics, UpdateMode::ClusterWide)
}

pub(super) const fn read_only(name: &'static str, kind: Kind) -> Key {
    key(name, kind, Scope::Broker, UpdateMode::ReadOnly)
}

pub(super) const fn per_broker(name: &'static str, kind: Kind) -> Key {
    key(name, kind, Scope::Broker, UpdateMode::PerBroker)
}

pub(super) const fn cluster_wide(name: &'static str, kind: Kind) -> Key {
    key(name, kind, Scope::Broker, UpdateMode::ClusterWide)
}

/// Builders that make a line of the table read like a sentence.
impl Key {
    pub(super) const fn default(mut self, text: &'static str) -> Key {
        self.default = Some(text);
        self
    }

    pub(super) const fn doc(mut self, text: &'static str) -> Key {
        self.doc = text;
        self
    }

    pub(super) const fn synonyms(mut self, names: &'static [&'static str]) -> Key {
        self.synonyms = names;
        self
    }

    pub(super) const fn honoured(mut self) -> Key {
        self.effect = Effect::Honoured;
        self
    }

    pub(super) const fn sensitive(mut self) -> Key {
        self.sensitive = true;
        self
    }

    pub(super) const fn hidden(mut self) -> Key {
        self.hidden = true;
        self
    }

    pub(super) const fn at_least(self, min: i64) -> Key {
        self.checked(Check::AtLeast(min))
    }

    pub(super) const fn between(self, min: i64, max: i64) -> Key {
        self.checked(Check::Between(min, max))
    }

    pub(super) const fn between_or(self, min: i64, max: i64, or: i64) -> Key {
        self.checked(Check::BetweenOr(min, max, or))
    }

    pub(super) const fn real_between(self, min: f64, max: f64) -> Key {
        self.checked(Check::RealBetween(min, max))
    }

    pub(super) const fn one_of(self, values: &'static [&'static str]) -> Key {
        self.checked(Check::OneOf(values))
    }

    pub(super) const fn one_of_any_case(self, values: &'static [&'static str]) -> Key {
        self.checked(Check::OneOfAnyCase(values))
    }

    pub(super) const fn each_of(self, values: &'static [&'static str]) -> Key {
        self.checked(Check::EachOf(values))
    }

    pub(super) const fn throttled_replicas(self) -> Key {
        self.checked(Check::ThrottledReplicas)
    }

    pub(super) const fn offset_reset(self) -> Key {
        self.checked(Check::OffsetReset)
    }

    const fn checked(mut self, check: Check) -> Key {
        self.check = check;
        self
    }
}
