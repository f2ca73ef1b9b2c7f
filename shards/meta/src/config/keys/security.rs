//! Broker keys: TLS, SASL, delegation tokens, the authorizer.
//! Names, kinds, defaults and bounds are those of Apache Kafka 4.4; `honoured` marks what
//! Corelane acts on.

use super::super::key::{Kind, Section, per_broker, read_only};

pub(super) const SECURITY: Section = Section {
    title: "Security",
    keys: &[
        read_only("authorizer.class.name", Kind::String)
            .default("")
            .doc("Java class of the authorizer."),
        per_broker("principal.builder.class", Kind::Class)
            .default("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder")
            .doc("Java class that names the user of a connection. Not loaded here."),
        read_only("security.providers", Kind::String)
            .doc("Java security providers. Not loaded here."),
        read_only("connections.max.reauth.ms", Kind::Long)
            .default("0")
            .doc("Longest life of an authenticated session; 0: no limit."),
        per_broker("ssl.client.auth", Kind::String)
            .default("none")
            .one_of(&["required", "requested", "none"])
            .doc("Whether clients must show a certificate: required, requested or none."),
        per_broker("ssl.keystore.location", Kind::String)
            .doc("File with the server's key and certificates."),
        per_broker("ssl.keystore.type", Kind::String)
            .default("JKS")
            .doc("Format of the key store file."),
        per_broker("ssl.keystore.password", Kind::Password)
            .sensitive()
            .doc("Password of the key store file."),
        per_broker("ssl.keystore.key", Kind::Password).sensitive().doc("Private key as PEM text."),
        per_broker("ssl.keystore.certificate.chain", Kind::Password)
            .sensitive()
            .doc("Certificate chain as PEM text."),
        per_broker("ssl.key.password", Kind::Password)
            .sensitive()
            .doc("Password of the private key."),
        per_broker("ssl.truststore.location", Kind::String)
            .doc("File with the certificates that are trusted."),
        per_broker("ssl.truststore.type", Kind::String)
            .default("JKS")
            .doc("Format of the trust store file."),
        per_broker("ssl.truststore.password", Kind::Password)
            .sensitive()
            .doc("Password of the trust store file."),
        per_broker("ssl.truststore.certificates", Kind::Password)
            .sensitive()
            .doc("Trusted certificates as PEM text."),
        per_broker("ssl.enabled.protocols", Kind::List)
            .default("TLSv1.2,TLSv1.3")
            .doc("TLS versions that are offered."),
        per_broker("ssl.protocol", Kind::String)
            .default("TLSv1.3")
            .doc("TLS version that is preferred."),
        per_broker("ssl.cipher.suites", Kind::List)
            .default("")
            .doc("Cipher suites that are offered; empty: all sound ones."),
        per_broker("ssl.provider", Kind::String).doc("Java's TLS provider."),
        per_broker("ssl.secure.random.implementation", Kind::String)
            .doc("Java's random source for TLS."),
        per_broker("ssl.keymanager.algorithm", Kind::String)
            .default("SunX509")
            .doc("Java's key manager algorithm."),
        per_broker("ssl.trustmanager.algorithm", Kind::String)
            .default("PKIX")
            .doc("Java's trust manager algorithm."),
        per_broker("ssl.endpoint.identification.algorithm", Kind::String)
            .default("https")
            .doc("How host names are checked against certificates."),
        per_broker("ssl.engine.factory.class", Kind::Class)
            .doc("Java class that makes TLS engines. Not loaded here."),
        read_only("ssl.principal.mapping.rules", Kind::String)
            .default("DEFAULT")
            .doc("Rules that turn a certificate's subject into a user name."),
        read_only("ssl.allow.dn.changes", Kind::Bool)
            .default("false")
            .doc("Allow a reloaded certificate to have another subject."),
        read_only("ssl.allow.san.changes", Kind::Bool)
            .default("false")
            .doc("Allow a reloaded certificate to have other alternative names."),
        read_only("super.users", Kind::String)
            .default("")
            .doc("Users that every check lets through, as User:name, separated by semicolons."),
        read_only("allow.everyone.if.no.acl.found", Kind::Bool)
            .default("false")
            .doc("Allow what no ACL mentions."),
    ],
};

pub(super) const SASL: Section = Section {
    title: "SASL and delegation tokens",
    keys: &[
        per_broker("sasl.enabled.mechanisms", Kind::List)
            .default("GSSAPI")
            .doc("SASL mechanisms that are offered."),
        per_broker("sasl.mechanism.inter.broker.protocol", Kind::String)
            .default("GSSAPI")
            .doc("SASL mechanism between brokers."),
        read_only("sasl.mechanism.controller.protocol", Kind::String)
            .default("GSSAPI")
            .doc("SASL mechanism towards controllers."),
        per_broker("sasl.jaas.config", Kind::Password)
            .sensitive()
            .doc("Login settings in JAAS format."),
        read_only("sasl.server.max.receive.size", Kind::Int)
            .default("524288")
            .doc("Largest message before a connection has authenticated."),
        read_only("sasl.client.callback.handler.class", Kind::Class)
            .doc("Java class of client callbacks. Not loaded here."),
        read_only("sasl.server.callback.handler.class", Kind::Class)
            .doc("Java class of server callbacks. Not loaded here."),
        read_only("sasl.login.callback.handler.class", Kind::Class)
            .doc("Java class of login callbacks. Not loaded here."),
        read_only("sasl.login.class", Kind::Class).doc("Java login class. Not loaded here."),
        read_only("sasl.login.connect.timeout.ms", Kind::Int)
            .doc("Time limit for connecting to the identity provider."),
        read_only("sasl.login.read.timeout.ms", Kind::Int)
            .doc("Time limit for reading from the identity provider."),
        read_only("sasl.login.retry.backoff.ms", Kind::Long)
            .default("100")
            .doc("First wait before a login is tried again."),
        read_only("sasl.login.retry.backoff.max.ms", Kind::Long)
            .default("10000")
            .doc("Longest wait before a login is tried again."),
        per_broker("sasl.login.refresh.window.factor", Kind::Double)
            .default("0.8")
            .doc("Part of a token's life after which it is refreshed."),
        per_broker("sasl.login.refresh.window.jitter", Kind::Double)
            .default("0.05")
            .doc("Random part added to the refresh time."),
        per_broker("sasl.login.refresh.min.period.seconds", Kind::Short)
            .default("60")
            .doc("Least time before a token is refreshed."),
        per_broker("sasl.login.refresh.buffer.seconds", Kind::Short)
            .default("300")
            .doc("Time before a token's end at which it is refreshed at the latest."),
        per_broker("sasl.kerberos.service.name", Kind::String).doc("Kerberos service name."),
        per_broker("sasl.kerberos.kinit.cmd", Kind::String)
            .default("/usr/bin/kinit")
            .doc("Path of Kerberos' kinit."),
        per_broker("sasl.kerberos.ticket.renew.window.factor", Kind::Double)
            .default("0.8")
            .doc("Part of a ticket's life after which it is renewed."),
        per_broker("sasl.kerberos.ticket.renew.jitter", Kind::Double)
            .default("0.05")
            .doc("Random part added to the renewal time."),
        per_broker("sasl.kerberos.min.time.before.relogin", Kind::Long)
            .default("60000")
            .doc("Least time between two Kerberos logins."),
        per_broker("sasl.kerberos.principal.to.local.rules", Kind::List)
            .default("DEFAULT")
            .doc("Rules that turn a Kerberos principal into a user name."),
        read_only("sasl.oauthbearer.token.endpoint.url", Kind::String)
            .doc("Where tokens are issued."),
        read_only("sasl.oauthbearer.scope", Kind::String)
            .doc("Scope asked for when a token is issued."),
        read_only("sasl.oauthbearer.client.credentials.client.id", Kind::String)
            .doc("Client id for the client credentials grant."),
        read_only("sasl.oauthbearer.client.credentials.client.secret", Kind::Password)
            .sensitive()
            .doc("Client secret for the client credentials grant."),
        read_only("sasl.oauthbearer.assertion.algorithm", Kind::String)
            .default("RS256")
            .one_of_any_case(&["ES256", "RS256"])
            .doc("Signature algorithm of a client assertion."),
        read_only("sasl.oauthbearer.assertion.claim.aud", Kind::String)
            .doc("Audience claim of a client assertion."),
        read_only("sasl.oauthbearer.assertion.claim.exp.seconds", Kind::Int)
            .default("300")
            .between(0, 86400)
            .doc("Life of a client assertion."),
        read_only("sasl.oauthbearer.assertion.claim.iss", Kind::String)
            .doc("Issuer claim of a client assertion."),
        read_only("sasl.oauthbearer.assertion.claim.jti.include", Kind::Bool)
            .default("false")
            .doc("Give each client assertion its own id."),
        read_only("sasl.oauthbearer.assertion.claim.nbf.seconds", Kind::Int)
            .default("60")
            .between(0, 3600)
            .doc("How far back a client assertion begins to be valid."),
        read_only("sasl.oauthbearer.assertion.claim.sub", Kind::String)
            .doc("Subject claim of a client assertion."),
        read_only("sasl.oauthbearer.assertion.file", Kind::String)
            .doc("File with a ready client assertion."),
        read_only("sasl.oauthbearer.assertion.private.key.file", Kind::String)
            .doc("File with the key that signs client assertions."),
        read_only("sasl.oauthbearer.assertion.private.key.passphrase", Kind::Password)
            .sensitive()
            .doc("Password of the key that signs client assertions."),
        read_only("sasl.oauthbearer.assertion.template.file", Kind::String)
            .doc("File with the fixed part of a client assertion."),
        read_only("sasl.oauthbearer.jwt.retriever.class", Kind::Class)
            .default("org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever")
            .doc("Java class that gets tokens. Not loaded here."),
        read_only("sasl.oauthbearer.jwt.validator.class", Kind::Class)
            .default("org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator")
            .doc("Java class that checks tokens. Not loaded here."),
        read_only("sasl.oauthbearer.jwks.endpoint.url", Kind::String)
            .doc("Where the keys that sign tokens are published."),
        read_only("sasl.oauthbearer.jwks.endpoint.refresh.ms", Kind::Long)
            .default("3600000")
            .doc("Time between two loads of the signing keys."),
        read_only("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Kind::Long)
            .default("100")
            .doc("First wait before the signing keys are asked for again."),
        read_only("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Kind::Long)
            .default("10000")
            .doc("Longest wait before the signing keys are asked for again."),
        read_only("sasl.oauthbearer.clock.skew.seconds", Kind::Int)
            .default("30")
            .doc("Difference between clocks that token checks allow."),
        read_only("sasl.oauthbearer.expected.audience", Kind::List)
            .default("")
            .doc("Audiences of which a token must name one."),
        read_only("sasl.oauthbearer.expected.issuer", Kind::String)
            .doc("Issuer that a token must name."),
        read_only("sasl.oauthbearer.allow.unverified.audience", Kind::Bool)
            .default("false")
            .doc("Accept tokens when no expected audience is set."),
        read_only("sasl.oauthbearer.allow.unverified.issuer", Kind::Bool)
            .default("false")
            .doc("Accept tokens when no expected issuer is set."),
        read_only("sasl.oauthbearer.scope.claim.name", Kind::String)
            .default("scope")
            .doc("Claim that holds the scope."),
        read_only("sasl.oauthbearer.sub.claim.name", Kind::String)
            .default("sub")
            .doc("Claim that holds the user name."),
        read_only("delegation.token.secret.key", Kind::Password)
            .sensitive()
            .doc("Secret that signs delegation tokens; not set: no tokens."),
        read_only("delegation.token.max.lifetime.ms", Kind::Long)
            .default("604800000")
            .at_least(1)
            .doc("Longest life of a delegation token."),
        read_only("delegation.token.expiry.time.ms", Kind::Long)
            .default("86400000")
            .at_least(1)
            .doc("Life of a delegation token until it is renewed."),
        read_only("delegation.token.expiry.check.interval.ms", Kind::Long)
            .default("3600000")
            .at_least(1)
            .doc("Time between two looks for expired delegation tokens."),
    ],
};
