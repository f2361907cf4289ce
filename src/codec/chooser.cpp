#include "codec/chooser.h"
namespace varve {
Result<CodecPolicy> CodecPolicy::parse(std::string_view text){ CodecPolicy p; p.kind=Kind::chain; VARVE_ASSIGN(p.chain,CodecChain::parse(text)); return p;}
struct E : Encoder { CodecPolicy p; Result<EncodedBytes> encode(ByteSpan raw,const PackShape& s) override {return encode_chain(p.chain,raw,s);} };
std::unique_ptr<Encoder> make_encoder(const CodecPolicy& policy){auto e=std::make_unique<E>();e->p=policy;return e;}
}
