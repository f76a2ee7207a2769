// What ONNX Runtime loads: the operators of the domain "halyard".
#include "inputs.h"
#include "norm_rotary_cache.h"
#include "positions.h"
#include "rotary_embedding.h"

#include <string>

namespace {

using namespace halyard_onnxruntime;

/// An operator for each dtype. ONNX Runtime takes those of one name for one, and picks by type.
template <typename Kernel>
void add(Ort::CustomOpDomain &domain) {
    static const Operator<Kernel> operators[] = {Operator<Kernel>(ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT),
                                                 Operator<Kernel>(ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16),
                                                 Operator<Kernel>(ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16)};
    for (const auto &op : operators) {
        domain.Add(&op);
    }
}

/// Made once: sessions use it for as long as the library is loaded.
OrtCustomOpDomain *domain() {
    static Ort::CustomOpDomain made = [] {
        Ort::CustomOpDomain result("halyard");
        add<RotaryEmbedding>(result);
        add<NormRotaryCache>(result);
        static const PositionsOperator positions;
        result.Add(&positions);
        return result;
    }();
    return made;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) OrtStatus *RegisterCustomOps(OrtSessionOptions *options,
                                                                               const OrtApiBase *base) {
    const OrtApi *api = base->GetApi(ORT_API_VERSION);
    if (api == nullptr) {
        // CreateStatus has been in the API since its first version, and nothing in it ever moves.
        static const std::string sentence = "halyard: this library needs ONNX Runtime's API " +
                                            std::to_string(ORT_API_VERSION) + ", and this is ONNX Runtime " +
                                            base->GetVersionString();
        const OrtApi *first = base->GetApi(1);
        return first == nullptr ? nullptr : first->CreateStatus(ORT_NOT_IMPLEMENTED, sentence.c_str());
    }
    Ort::InitApi(api);
    return guard([&] { Ort::ThrowOnError(api->AddCustomOpDomain(options, domain())); });
}
