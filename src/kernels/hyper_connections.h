// A state of D parallel streams that every write mixes anew. One pass over the tokens finishes a sublayer and
// prepares the next, while a few tokens' states are in the cache:
//
//   writes    X'_j = write_j h + sum_i mix_ij X_i,  h is the sublayer's output           (StreamsWriteFwd)
//   looks     dots = products of the streams with rows of weights,  square_i = |X_i|^2
//   decides   read_i, write_j and mix_ij of the next sublayer, from dots and squares      (StreamMixer)
//   reads     x_in = sum_i read_i X_i,  context = RMSNorm(x_in)                           (StreamsReadFwd)
//
// The backward pass is the mirror image. The state in front of every write is stored: the mix may have no inverse
// worth the name, so nothing is walked back. Derivations: docs/math.md, "Mixed streams".
#pragma once

#include "core/bf16.h"
#include "core/exec.h"
#include "kernels/gemm.h"

namespace ddl {

inline constexpr Index kMaxStreams = 8;      // D
inline constexpr Index kMaxStreamDots = 80;  // of a token

// The numbers that steer a token's read and write, K floats in this order. The diagonal of the mix stands there
// once more, in one piece, for those who report it.
struct StreamNumbers {
  Index D;
  Index read() const { return 0; }
  Index write() const { return D; }
  Index mix() const { return 2 * D; }  // [i][j]
  Index diagonal() const { return 2 * D + D * D; }
  Index count() const { return 3 * D + D * D; }
};

// How a rule makes those numbers from what it sees of one token. The pass calls it between its sweeps over the
// features, so it is plain scalar code. Both verbs are functions of dots and squares; nothing else is saved.
class StreamMixer {
 public:
  virtual ~StreamMixer() = default;

  virtual Index rows() const = 0;  // R rows of weights; 0: it does not look at the state
  // True: every stream meets the same rows w_RC and has dots of its own, dots_DR.
  // False: a row is as long as all streams, w_RDC, and its product with all of them is one number, dots_R.
  virtual bool shares_rows() const = 0;
  virtual Index extra_count() const = 0;  // parameters besides the rows
  Index dots(Index D) const { return shares_rows() ? D * rows() : rows(); }
  Index weights(Index D, Index C) const { return shares_rows() ? rows() * C : rows() * D * C; }

  struct Forward {
    Index D = 0, C = 0;
    const float* extra = nullptr;
    const float *dots = nullptr, *square_D = nullptr;
    float *read_D = nullptr, *write_D = nullptr, *mix_DD = nullptr;  // out
  };
  virtual void forward(const Forward& token) const = 0;

  struct Backward {
    Index D = 0, C = 0;
    const float* extra = nullptr;
    const float *dots = nullptr, *square_D = nullptr;
    const float *dread_D = nullptr, *dwrite_D = nullptr, *dmix_DD = nullptr;
    float *ddots = nullptr, *dsquare_D = nullptr;  // out, where there are rows
    float* dextra = nullptr;                       // accumulated: the gradients of `extra`
  };
  virtual void backward(const Backward& token) const = 0;
};

template <class T>
struct StreamsWriteFwd {
  const float* from_NDC = nullptr;  // the state before the write; may be the state after it
  const T* h_NC = nullptr;
  const float* numbers_NK = nullptr;
};

// What the mixer looks at and what it said, of every token. A pass may write the numbers where it read those of
// the sublayer before.
struct StreamsLook {
  const StreamMixer* mixer = nullptr;  // null: the readout, read_i = 1
  const float* w = nullptr;            // its rows
  const float* extra = nullptr;
  float *dots_NQ = nullptr, *square_ND = nullptr;  // out; null without rows
  float* numbers_NK = nullptr;                     // out
};

template <class T>
struct StreamsReadFwd {
  StreamsLook look = {};
  const float* norm_C = nullptr;
  float norm_eps = 1e-5f;
  T* context_NC = nullptr;  // out
  float* rstd_N = nullptr;  // out
};

// Either part may be null.
template <class T>
void streams_fwd(float* state_NDC, const StreamsWriteFwd<T>* write, const StreamsReadFwd<T>* read, Index N,
                 Index D, Index C, const Exec& ex);

template <class T>
struct StreamsReadBwd {
  StreamsLook look = {};             // as forward left it
  const float* state_NDC = nullptr;  // what was read
  const float* norm_C = nullptr;
  const float* rstd_N = nullptr;
  const float* dcontext_NC = nullptr;
  const float* dnumbers_NK = nullptr;      // from the backward pass of the write they steered
  Write dstate_mode = Write::kAccumulate;  // kOverwrite at the top, where no other path reaches the state
  float *dw = nullptr, *dextra = nullptr;  // accumulated
  float* dnorm_C = nullptr;                // accumulated
};

template <class T>
struct StreamsWriteBwd {
  const float* from_NDC = nullptr;  // the state before the write
  const T* h_NC = nullptr;
  const float* numbers_NK = nullptr;
  T* dh_NC = nullptr;            // out
  float* dnumbers_NK = nullptr;  // out: dwrite and dmix; may be the read part's, which is done with them
};

// In: dstate is the gradient of the state after the write, by all paths but this read's. Out: of the state
// before it, by the same paths. Either part may be null. scratch: streams_bwd_scratch floats.
template <class T>
void streams_bwd(float* dstate_NDC, const StreamsReadBwd<T>* read, const StreamsWriteBwd<T>* write,
                 float* scratch, Index N, Index D, Index C, const Exec& ex);
Index streams_bwd_scratch(const StreamMixer& mixer, Index D, Index C);

}  // namespace ddl
