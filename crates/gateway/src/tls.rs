//! Encrypted connections of clients.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate with its key, read from files.
#[derive(Clone)]
pub(crate) struct Tls {
    pub cert: String,
    pub key: String,
    pub acceptor: TlsAcceptor,
}

impl Tls {
    /// Reads a chain of certificates and the key of the first. Mistakes name the setting.
    pub(crate) fn read(cert: &str, key: &str) -> Result<Tls, String> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(cert)
            .and_then(Iterator::collect)
            .map_err(|error| format!("tls_cert: {cert}: {error}"))?;
        if chain.is_empty() {
            return Err(format!("tls_cert: {cert}: holds no certificate; it begins with -----BEGIN CERTIFICATE-----"));
        }
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("tls_key: {key}: {error}"))?;
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("tls_cert: {error}"))?;
        let mut config = config
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|error| format!("tls_key: {key} does not go with {cert}: {error}"))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Tls { cert: cert.to_owned(), key: key.to_owned(), acceptor })
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("cert", &self.cert).field("key", &self.key).finish_non_exhaustive()
    }
}
