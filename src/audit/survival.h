// What is left, at the end of the network, of what each sublayer wrote into one token's state.
//
// A rule that erases writes, with e the gate of the erase and w that of the write (in ddl they are one),
//   X <- (I - e_s k_s k_s^T) X + w_s k_s v_s^T
// Let P(i -> j) be the product of (I - e k k^T) over the sublayers i .. j-1, later ones on the left. Then exactly
//   X_S = P(0 -> S) X_0 + sum_m P(m+1 -> S) k_m w_m v_m^T
// the surviving embedding and the surviving writes. Each of these vectors is X_0 or k_m plus a combination of later
// directions, so a token's products k_l . k_m and k_l . X_0 are all that is needed: nothing here has C features.
#pragma once

#include <vector>

#include "core/index.h"

namespace ddl {

struct TokenWrites {
  Index sublayers = 0, channels = 0;   // S, D
  std::vector<double> gram_SS;         // k_l . k_m
  std::vector<double> start_dot_SD;    // k_l . X_0,d
  std::vector<double> start_square_D;  // |X_0,d|^2
  std::vector<double> erase_S;         // e
};

struct Surviving {
  std::vector<double>
      left_SS;  // [m][j], j >= m: |P(m+1 -> j+1) k_m|, what sublayers m+1 .. j leave of write m
  std::vector<double> write_SS;      // [m][l]: P(m+1 -> S) k_m  = sum_l write[m][l] k_l
  std::vector<double> start_DS;      // [d][l]: P(0 -> S) X_0,d = X_0,d + sum_l start[d][l] k_l
  std::vector<double> start_left_S;  // [j]: |P(0 -> j+1) X_0|, over all planes
};

// Overwrites `out`, whose memory is used again.
void find_surviving(const TokenWrites& token, Surviving& out);

}  // namespace ddl
