//! Broker keys: the process, its listeners, sockets and connections.
//! Names, kinds, defaults and bounds are those of Apache Kafka 4.4; `honoured` marks what
//! Corelane acts on.

use super::super::key::{Kind, Section, cluster_wide, per_broker, read_only};

pub(super) const IDENTITY: Section = Section { title: "Identity and process", keys: &[
    read_only("node.id", Kind::Int)
        .default("0")
        .at_least(0)
        .doc(
            "Id of this broker in the cluster. Shard s of broker b answers as Kafka node b x 1000 \
             + s.",
        )
        .honoured(),
    read_only("broker.id", Kind::Int)
        .default("-1")
        .doc("Older name of node.id; both may be set only to the same value. -1: use node.id.")
        .honoured(),
    read_only("process.roles", Kind::List)
        .default("broker,controller")
        .each_of(&["broker", "controller"])
        .doc("Kafka's roles of a process. Every Corelane process is broker and controller."),
    read_only("broker.rack", Kind::String)
        .doc("Rack or zone of this host, shown to clients and used to spread replicas.")
        .honoured(),
    read_only("server.max.startup.time.ms", Kind::Long)
        .default("9223372036854775807")
        .at_least(0)
        .doc("Longest start-up that Kafka allows. Corelane starts serving at once.")
        .hidden(),
    cluster_wide("config.providers", Kind::List)
        .default("")
        .doc("Kafka's plug-ins that read secrets from elsewhere. Not loaded here."),
    read_only("early.start.listeners", Kind::List)
        .doc("Listeners that Kafka opens before its authorizer is ready."),
    read_only("controlled.shutdown.enable", Kind::Bool)
        .default("true")
        .doc("Hand leadership over before stopping. A single node has nobody to hand it to."),
    per_broker("cordoned.log.dirs", Kind::List)
        .default("")
        .doc("Data directories that get no new replicas."),
]};

pub(super) const LISTENERS: Section = Section {
    title: "Listeners, sockets and connections",
    keys: &[
        read_only("listeners", Kind::List)
            .default("PLAINTEXT://127.0.0.1:9092")
            .doc("Address that clients connect to. Shard s listens on this port + s.")
            .honoured(),
        read_only("advertised.listeners", Kind::List)
            .doc(
                "Host name and port that clients are told to use, when they differ from listeners.",
            )
            .honoured(),
        per_broker("listener.security.protocol.map", Kind::String)
            .default("SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT")
            .doc("Security protocol of each listener name. Only PLAINTEXT is served so far."),
        read_only("inter.broker.listener.name", Kind::String).doc("Listener used between brokers."),
        read_only("security.inter.broker.protocol", Kind::String)
            .default("PLAINTEXT")
            .one_of(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
            .doc("Security protocol used between brokers."),
        read_only("controller.listener.names", Kind::List)
            .default("CONTROLLER")
            .doc("Listeners of Kafka's controllers. Corelane has no separate controller listener."),
        cluster_wide("num.network.threads", Kind::Int)
            .default("3")
            .at_least(1)
            .doc("Kafka's network threads. Corelane runs one thread per shard for everything."),
        cluster_wide("num.io.threads", Kind::Int)
            .default("8")
            .at_least(1)
            .doc("Kafka's request threads. Corelane runs one thread per shard for everything."),
        cluster_wide("background.threads", Kind::Int)
            .default("10")
            .at_least(1)
            .doc("Kafka's background threads. Corelane has none."),
        read_only("queued.max.requests", Kind::Int).default("500").at_least(1).doc(
            "Requests that may wait in Kafka's queue. Corelane bounds waiting requests by bytes.",
        ),
        read_only("queued.max.request.bytes", Kind::Long)
            .default("-1")
            .doc("Bytes of requests that may wait in Kafka's queue; -1: no bound."),
        read_only("socket.send.buffer.bytes", Kind::Int)
            .default("102400")
            .doc("Socket send buffer; -1: the system's own choice, which Corelane always takes."),
        read_only("socket.receive.buffer.bytes", Kind::Int).default("102400").doc(
            "Socket receive buffer; -1: the system's own choice, which Corelane always takes.",
        ),
        read_only("socket.request.max.bytes", Kind::Int)
            .default("104857600")
            .at_least(1)
            .doc(
                "Largest request frame. A larger one closes its connection before anything is \
             allocated.",
            )
            .honoured(),
        read_only("socket.listen.backlog.size", Kind::Int)
            .default("50")
            .at_least(1)
            .doc("Connections that may wait to be accepted, per shard; fewer than 1024 count as 1024.")
            .honoured(),
        read_only("socket.connection.setup.timeout.ms", Kind::Long)
            .default("10000")
            .doc("First time limit for an outgoing connection."),
        read_only("socket.connection.setup.timeout.max.ms", Kind::Long)
            .default("30000")
            .doc("Longest time limit for an outgoing connection."),
        cluster_wide("max.connections", Kind::Int)
            .default("2147483647")
            .at_least(0)
            .doc("Connections that one shard serves at a time.")
            .honoured(),
        cluster_wide("max.connections.per.ip", Kind::Int)
            .default("2147483647")
            .at_least(0)
            .doc("Connections from one address that one shard serves at a time.")
            .honoured(),
        cluster_wide("max.connections.per.ip.overrides", Kind::String)
            .default("")
            .doc("Connection limits for single addresses, as host:count pairs."),
        cluster_wide("max.connection.creation.rate", Kind::Int)
            .default("2147483647")
            .at_least(0)
            .doc("New connections a second."),
        read_only("connections.max.idle.ms", Kind::Long)
            .default("600000")
            .doc("A connection without requests for this long is closed.")
            .honoured(),
        read_only("connection.failed.authentication.delay.ms", Kind::Int)
            .default("100")
            .at_least(0)
            .doc("Delay before a failed authentication is answered."),
        read_only("request.timeout.ms", Kind::Int)
            .default("30000")
            .doc("Time limit of requests that a broker sends."),
        read_only("max.request.partition.size.limit", Kind::Int)
            .default("2000")
            .at_least(1)
            .doc("Partitions that one DescribeTopicPartitions answer may hold.")
            .honoured(),
    ],
};
